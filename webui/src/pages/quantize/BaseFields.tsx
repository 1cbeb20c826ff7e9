import { Form, InputNumber, Select } from 'antd'
import { Link } from 'react-router'
import type { Scheme } from '@/api/quantization'
import type { Version } from '@/api/types'
import { useText } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { devicesOf } from './quantizeForm'

/** Which version, and on what it is to be served. */
export function BaseFields({ versions, schemes }: { versions: Version[]; schemes: Scheme[] }) {
  const t = useText()
  const text = useQuantizeText()
  const chosen = Form.useWatch<string | undefined>('version')
  return (
    <>
      <Form.Item
        name="version"
        label={text.base}
        extra={chosen && <Link to={`/quantize/${chosen}`}>{text.results}</Link>}
        rules={[{ required: true, message: t.common.required(text.base) }]}
      >
        <Select
          showSearch={{ optionFilterProp: 'label' }}
          options={versions.map((one) => ({
            value: one.id,
            label: [`${one.model_name} v${one.number}`, one.quantization || one.dtype]
              .filter(Boolean)
              .join(' · '),
          }))}
        />
      </Form.Item>
      <div className="field-grid">
        <Form.Item name="device" label={text.target} extra={text.targetHint}>
          <Select options={devicesOf(schemes)} />
        </Form.Item>
        <Form.Item
          name="tp"
          label={text.ranks}
          extra={text.ranksHint}
          rules={[{ required: true, message: t.common.required(text.ranks) }]}
        >
          <InputNumber min={1} max={64} precision={0} className="full-width" />
        </Form.Item>
      </div>
    </>
  )
}
