import { DeleteOutlined, PlusOutlined } from '@ant-design/icons'
import { Button, Form, InputNumber, Select } from 'antd'
import { useEvaluationText } from '@/i18n/evaluations'
import { METRIC_NAMES, quantileName } from '../result/figures'
import { METRICS, type ObjectiveField, QUANTILES, sampleWarning } from './runForm'

/** Objectives, and how many requests it takes to certify them. */
export function ObjectiveFields() {
  const text = useEvaluationText().form
  return (
    <>
      <p className="muted">{text.sloHint}</p>
      <ObjectiveList />
      <Form.Item name="min_requests" label={text.sample} extra={<SampleHint />} rules={[{ required: true }]}>
        <InputNumber min={1} max={10_000_000} precision={0} className="full-width" />
      </Form.Item>
    </>
  )
}

/** "P99 of E2EL at most 2000 ms", as many as wanted. */
export function ObjectiveList() {
  const text = useEvaluationText().form
  return (
    <Form.List name="slo">
      {(fields, { add, remove }) => (
        <>
          {fields.map((field) => (
            <div key={field.key} className="objective-fields">
              <Form.Item name={[field.name, 'quantile']} label={text.quantile}>
                <Select options={QUANTILES.map((value) => ({ value, label: quantileName(value) }))} />
              </Form.Item>
              <Form.Item name={[field.name, 'metric']} label={text.metric}>
                <Select options={METRICS.map((value) => ({ value, label: METRIC_NAMES[value] }))} />
              </Form.Item>
              <Form.Item name={[field.name, 'limit_ms']} label={text.limit} rules={[{ required: true }]}>
                <InputNumber min={0.1} className="full-width" />
              </Form.Item>
              <Button
                type="text"
                aria-label={text.removeObjective}
                icon={<DeleteOutlined />}
                onClick={() => remove(field.name)}
              />
            </div>
          ))}
          <Button
            className="add-objective"
            icon={<PlusOutlined />}
            onClick={() => add({ quantile: 0.99, metric: 'e2el', limit_ms: 2_000 })}
          >
            {text.addObjective}
          </Button>
        </>
      )}
    </Form.List>
  )
}

function SampleHint() {
  const text = useEvaluationText().form
  const slo: ObjectiveField[] = Form.useWatch('slo') ?? []
  const requests: number = Form.useWatch('min_requests') ?? 0
  const warning = sampleWarning(slo, requests)
  const name = warning ? quantileName(warning.quantile) : ''
  return (
    <>
      {text.sampleHint}
      {warning && (
        <div role="status" className={warning.kind === 'tooFew' ? 'tone-error' : 'tone-warning'}>
          {warning.kind === 'tooFew'
            ? text.sampleTooFew(name, warning.fewest)
            : text.sampleThin(name, warning.fewest)}
        </div>
      )}
    </>
  )
}
