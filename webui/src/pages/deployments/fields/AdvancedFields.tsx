import { Collapse, Form, InputNumber, Select, Space } from 'antd'
import { useNodes } from '@/api/operations'
import type { EngineInfo, JsonSchema } from '@/api/types'
import { useText } from '@/i18n'
import { SchemaFields } from './SchemaFields'

export function AdvancedFields({
  engine,
  openAtFirst,
}: {
  engine: EngineInfo | undefined
  openAtFirst: boolean
}) {
  const t = useText()
  return (
    <Collapse
      defaultActiveKey={openAtFirst ? ['advanced'] : []}
      items={[
        {
          key: 'advanced',
          forceRender: true,
          label: t.deployments.form.advanced,
          children: <Fields engine={engine} />,
        },
      ]}
    />
  )
}

/** An engine that says who can guess has a card of its own for it. */
function withoutSpeculation({ capabilities, options_schema }: EngineInfo): JsonSchema {
  if (!capabilities.proposers?.length) return options_schema
  const { speculation: _speculation, ...properties } = options_schema.properties ?? {}
  return { ...options_schema, properties }
}

function Fields({ engine }: { engine: EngineInfo | undefined }) {
  const t = useText()
  const text = t.deployments.form
  return (
    <>
      <div className="field-grid">
        <Amount
          name="max_model_len"
          label={text.maxModelLen}
          extra={text.maxModelLenHint}
          unit={text.tokens}
        />
        <Amount
          name="max_num_seqs"
          label={text.maxNumSeqs}
          extra={text.maxNumSeqsHint}
          unit={text.requests}
        />
        <Amount name="kv_cache_mib" label={text.kvCache} extra={text.kvCacheHint} unit="MiB" />
        <Placement />
      </div>
      {engine?.options_schema.properties && (
        <SchemaFields schema={withoutSpeculation(engine)} path="options" />
      )}
    </>
  )
}

function Amount({ name, label, extra, unit }: { name: string; label: string; extra: string; unit: string }) {
  // The form item must wrap the input itself, so that label and error are tied to it.
  return (
    <Form.Item label={label} extra={extra} htmlFor={name}>
      <Space.Compact block>
        <Form.Item name={name} noStyle>
          <InputNumber id={name} min={0} precision={0} className="full-width" />
        </Form.Item>
        <Space.Addon>{unit}</Space.Addon>
      </Space.Compact>
    </Form.Item>
  )
}

function Placement() {
  const t = useText()
  const nodes = useNodes()
  const pinned: string = Form.useWatch('node_name') ?? ''
  const gpus = nodes.data?.results.find((node) => node.name === pinned)?.gpus ?? []
  return (
    <>
      <Form.Item name="node_name" label={t.deployments.form.node}>
        <Select
          options={[
            { value: '', label: t.deployments.form.anyNode },
            ...(nodes.data?.results.map(({ name }) => ({ value: name, label: name })) ?? []),
          ]}
        />
      </Form.Item>
      {gpus.length > 0 && (
        <Form.Item name="gpu_indices" label={t.deployments.form.gpus}>
          <Select
            mode="multiple"
            placeholder={t.deployments.form.anyGpu}
            options={gpus.map((gpu) => ({ value: gpu.index, label: `${gpu.index}: ${gpu.name}` }))}
          />
        </Form.Item>
      )}
    </>
  )
}
