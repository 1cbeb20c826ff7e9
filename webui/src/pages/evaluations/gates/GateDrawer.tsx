import { DeleteOutlined, PlusOutlined } from '@ant-design/icons'
import { AutoComplete, Button, Drawer, Form, Input, InputNumber, Segmented, Select, Switch } from 'antd'
import { useDeployments } from '@/api/deployments'
import { type Gate, type GateInput, useRuns, useSaveGate, useSuites } from '@/api/evaluations'
import { useModels } from '@/api/models'
import { useSaid, useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { showFieldErrors } from '@/ui/formErrors'

const NEW: Partial<GateInput> = {
  name: '',
  kind: 'alias',
  alias: '',
  require_pass: true,
  forbid_regression: true,
  limits: [],
  max_age_days: 30,
}

export function GateDrawer({ gate, onClose }: { gate: Gate | null; onClose: () => void }) {
  const t = useText()
  const said = useSaid()
  const text = useEvaluationText().gates
  const suites = useSuites()
  const save = useSaveGate(gate?.id ?? null)
  const [form] = Form.useForm<Partial<GateInput>>()
  const needed = (label: string) => [{ required: true, message: t.common.required(label) }]
  return (
    <Drawer
      open
      title={gate === null ? text.create : text.edit}
      size={480}
      onClose={onClose}
      extra={
        <Button type="primary" loading={save.isPending} onClick={() => form.submit()}>
          {t.common.save}
        </Button>
      }
    >
      <Form
        form={form}
        layout="vertical"
        requiredMark={false}
        initialValues={gate ? editable(gate) : NEW}
        onFinish={(values) =>
          save.mutate(values, { onSuccess: onClose, onError: (error) => showFieldErrors(form, error, said) })
        }
      >
        <Form.Item name="name" label={t.common.name} rules={needed(t.common.name)}>
          <Input maxLength={100} autoComplete="off" />
        </Form.Item>
        {gate === null && <Subject />}
        {gate?.kind === 'alias' && <AliasField />}
        <Form.Item name="suite" label={text.suite} extra={text.suiteHint} rules={needed(text.suite)}>
          <Select
            showSearch={{ optionFilterProp: 'label' }}
            options={suites.data?.results.map((one) => ({ value: one.id, label: one.name }))}
          />
        </Form.Item>
        <Form.Item name="require_pass" label={text.asksPass} valuePropName="checked">
          <Switch />
        </Form.Item>
        <Form.Item name="forbid_regression" label={text.asksNoRegression} valuePropName="checked">
          <Switch />
        </Form.Item>
        <Limits />
        <Form.Item name="max_age_days" label={text.maxAge} extra={text.maxAgeHint}>
          <InputNumber min={1} max={3650} precision={0} className="full-width" />
        </Form.Item>
        <ErrorNotice error={save.error} />
      </Form>
    </Drawer>
  )
}

/** What of a gate may change, as its form holds it. */
function editable({ name, suite, alias, require_pass, forbid_regression, limits, max_age_days }: Gate) {
  return { name, suite, alias, require_pass, forbid_regression, limits, max_age_days }
}

/** What is held back; it can't be changed later. */
function Subject() {
  const t = useText()
  const text = useEvaluationText().gates
  const models = useModels()
  const deployments = useDeployments()
  const kind: Gate['kind'] = Form.useWatch('kind') ?? 'alias'
  return (
    <>
      <Form.Item name="kind" label={text.guards}>
        <Segmented
          block
          aria-label={text.guards}
          options={(['alias', 'rollout'] as const).map((value) => ({ value, label: text.guardKinds[value] }))}
        />
      </Form.Item>
      {kind === 'alias' ? (
        <>
          <Form.Item
            name="model"
            label={text.model}
            rules={[{ required: true, message: t.common.required(text.model) }]}
          >
            <Select
              showSearch={{ optionFilterProp: 'label' }}
              options={models.data?.results.map((one) => ({ value: one.id, label: one.name }))}
            />
          </Form.Item>
          <AliasField />
        </>
      ) : (
        <Form.Item
          name="deployment"
          label={text.deployment}
          rules={[{ required: true, message: t.common.required(text.deployment) }]}
        >
          <Select
            showSearch={{ optionFilterProp: 'label' }}
            options={deployments.data?.results.map((one) => ({ value: one.id, label: one.name }))}
          />
        </Form.Item>
      )}
    </>
  )
}

function AliasField() {
  const text = useEvaluationText().gates
  return (
    <Form.Item name="alias" label={text.alias} extra={text.aliasHint}>
      <AutoComplete options={[{ value: 'champion' }, { value: 'candidate' }]} maxLength={50} />
    </Form.Item>
  )
}

/** Figures against numbers; the names are those that the suite's last run has measured. */
function Limits() {
  const text = useEvaluationText().gates
  const suite: string | undefined = Form.useWatch('suite')
  const runs = useRuns({ suite, state: 'completed', page_size: 1 })
  const known = suite === undefined ? [] : Object.keys(runs.data?.results[0]?.figures ?? {})
  return (
    <Form.List name="limits">
      {(fields, { add, remove }) => (
        <>
          {fields.map((field) => (
            <div key={field.key} className="limit-fields">
              <Form.Item name={[field.name, 'figure']} label={text.figure} rules={[{ required: true }]}>
                <AutoComplete options={known.map((value) => ({ value }))} />
              </Form.Item>
              <Form.Item name={[field.name, 'min']} label={text.least}>
                <InputNumber className="full-width" />
              </Form.Item>
              <Form.Item name={[field.name, 'max']} label={text.most}>
                <InputNumber className="full-width" />
              </Form.Item>
              <Button
                type="text"
                aria-label={text.removeLimit}
                icon={<DeleteOutlined />}
                onClick={() => remove(field.name)}
              />
            </div>
          ))}
          <Button className="add-objective" icon={<PlusOutlined />} onClick={() => add({ figure: '' })}>
            {text.addLimit}
          </Button>
        </>
      )}
    </Form.List>
  )
}
