import { Card, Form, InputNumber, Segmented } from 'antd'
import type { Scheme } from '@/api/quantization'
import { useLocale, useSaid, useText } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { CorpusField } from '@/pages/models/domain/CorpusField'
import { formatCount } from '@/ui/units'
import type { QuantizeForm } from './quantizeForm'
import { TrafficLine } from './TrafficLine'

/** Fewer tokens make a Hessian that knows its samples and not the model. */
const ENOUGH_TOKENS = 50_000
const SOURCES = ['builtin', 'corpus', 'gateway'] as const

/** Texts that the methods look at, and how many: asked once for all schemes that need them. */
export function CalibrationFields({ chosen, values }: { chosen: Scheme[]; values: QuantizeForm }) {
  const t = useText()
  const text = useQuantizeText()
  const said = useSaid()
  const locale = useLocale()
  const users = chosen.filter((one) => one.needs_data)
  if (chosen.length > 0 && users.length === 0) {
    return (
      <Card title={text.calibration} size="small">
        <span className="muted">{text.noCalibration}</span>
      </Card>
    )
  }
  const number = (value: number) => formatCount(value, locale)
  const all = (values.samples ?? 0) * (values.tokens ?? 0)
  return (
    <Card title={text.calibration} size="small">
      {users.length > 0 && users.length < chosen.length && (
        <p className="muted">{text.calibrationUnused(users.map((one) => said(one.label)).join(' · '))}</p>
      )}
      <Form.Item name="source" label={text.source} extra={text.sourceHints[values.source]}>
        <Segmented
          aria-label={text.source}
          options={SOURCES.map((value) => ({ value, label: text.sources[value] }))}
        />
      </Form.Item>
      {values.source === 'corpus' && (
        <CorpusField rules={[{ required: true, message: t.common.required(text.sources.corpus) }]} />
      )}
      {values.source === 'gateway' && <TrafficLine />}
      <div className="field-grid">
        <Rows name="samples" label={text.samples} min={32} max={4096} />
        <Rows name="tokens" label={text.tokens} min={32} max={8192} />
      </div>
      <p className="muted">
        {text.tokensInAll(number(values.samples ?? 0), number(values.tokens ?? 0), number(all))}{' '}
        {all < ENOUGH_TOKENS && users.length > 0 && <span className="tone-warning">{text.fewTokens}</span>}
      </p>
    </Card>
  )
}

function Rows({ name, label, min, max }: { name: string; label: string; min: number; max: number }) {
  const t = useText()
  return (
    <Form.Item name={name} label={label} rules={[{ required: true, message: t.common.required(label) }]}>
      <InputNumber min={min} max={max} precision={0} className="full-width" />
    </Form.Item>
  )
}
