import { Form, InputNumber, Select, Switch } from 'antd'
import { useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { CorpusField } from '@/pages/models/domain/CorpusField'
import { DATASETS, type DatasetKind, TRACE_FORMATS } from './runForm'

const OF_FILES: DatasetKind[] = ['jsonl', 'sharegpt', 'trace']
const WITH_LENGTHS: DatasetKind[] = ['synthetic', 'shared_prefix', 'sessions']

/** What is asked: the data set and its lengths. */
export function DataFields() {
  const text = useEvaluationText().form
  const t = useText()
  const dataset: DatasetKind = Form.useWatch('dataset') ?? 'synthetic'
  return (
    <>
      <Form.Item name="dataset" label={text.dataset} extra={text.datasetHints[dataset]}>
        <Select options={DATASETS.map((value) => ({ value, label: text.datasets[value] }))} />
      </Form.Item>
      {OF_FILES.includes(dataset) && (
        <>
          <CorpusField rules={[{ required: true, message: t.common.required(text.path) }]} />
          {dataset === 'trace' && (
            <Form.Item name="format" label={text.format}>
              <Select options={TRACE_FORMATS.map((value) => ({ value, label: value }))} />
            </Form.Item>
          )}
        </>
      )}
      <div className="field-grid">
        {dataset === 'shared_prefix' && (
          <>
            <Tokens name="prefix" label={text.prefixTokens} />
            <Tokens name="groups" label={text.groups} />
          </>
        )}
        {WITH_LENGTHS.includes(dataset) && <Tokens name="prompt" label={text.promptTokens} />}
        {(WITH_LENGTHS.includes(dataset) || dataset === 'jsonl') && (
          <Tokens name="output" label={text.outputTokens} />
        )}
        {(WITH_LENGTHS.includes(dataset) || dataset === 'jsonl') && (
          <Form.Item name="varied" label={text.varied} valuePropName="checked">
            <Switch />
          </Form.Item>
        )}
        {dataset === 'sessions' && (
          <>
            <Tokens name="turns" label={text.turns} />
            <Form.Item name="think_s" label={text.think}>
              <InputNumber min={0} className="full-width" />
            </Form.Item>
          </>
        )}
      </div>
    </>
  )
}

function Tokens({ name, label }: { name: string; label: string }) {
  const t = useText()
  return (
    <Form.Item name={name} label={label} rules={[{ required: true, message: t.common.required(label) }]}>
      <InputNumber min={1} max={10_000_000} precision={0} className="full-width" />
    </Form.Item>
  )
}
