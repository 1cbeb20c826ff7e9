import { Form, Input, InputNumber, Select } from 'antd'
import { useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { ARRIVALS, type DatasetKind, followsTrace, LOADS, type LoadKind, RECORDED, ratesOf } from './runForm'

/** How it is asked: search, one rate, given rates or a closed loop. */
export function LoadFields() {
  const text = useEvaluationText().form
  const t = useText()
  const load: LoadKind = Form.useWatch('load') ?? 'search'
  const dataset: DatasetKind = Form.useWatch('dataset') ?? 'synthetic'
  const arrivals: string = Form.useWatch('arrivals') ?? ''
  const recorded = dataset === 'trace' && load === 'rate' ? [RECORDED] : []
  const needed = (label: string) => [{ required: true, message: t.common.required(label) }]
  return (
    <>
      <Form.Item name="load" label={text.loadKind} extra={text.loadHints[load]}>
        <Select options={LOADS.map((value) => ({ value, label: text.loads[value] }))} />
      </Form.Item>
      <div className="field-grid">
        {load === 'search' && (
          <>
            <Form.Item name="low" label={text.low} rules={needed(text.low)}>
              <InputNumber min={0.001} className="full-width" />
            </Form.Item>
            <Form.Item name="high" label={text.high} extra={text.highHint}>
              <InputNumber min={0.001} className="full-width" />
            </Form.Item>
          </>
        )}
        {load === 'rate' && !followsTrace({ dataset, load, arrivals }) && (
          <Form.Item name="rate" label={text.rate} rules={needed(text.rate)}>
            <InputNumber min={0.001} className="full-width" />
          </Form.Item>
        )}
        {load === 'sweep' && (
          <Form.Item
            name="rates"
            label={text.rates}
            extra={text.ratesHint}
            rules={[
              {
                validator: (_, value: string) =>
                  ratesOf(value ?? '') ? Promise.resolve() : Promise.reject(new Error(text.ratesBad)),
              },
            ]}
          >
            <Input autoComplete="off" />
          </Form.Item>
        )}
        {load === 'concurrency' ? (
          <Form.Item name="concurrency" label={text.concurrency} rules={needed(text.concurrency)}>
            <InputNumber min={1} precision={0} className="full-width" />
          </Form.Item>
        ) : (
          <Form.Item name="arrivals" label={text.arrivals}>
            <Select
              options={[...ARRIVALS, ...recorded].map((value) => ({
                value,
                label: text.arrivalNames[value],
              }))}
            />
          </Form.Item>
        )}
      </div>
    </>
  )
}
