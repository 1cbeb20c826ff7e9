import { Form, InputNumber, Select } from 'antd'
import type { EngineInfo } from '@/api/types'
import { useText } from '@/i18n'

/** `values` with "auto" in front, once. */
function withAuto(values: string[], label: string) {
  return [
    { value: 'auto', label },
    ...values.filter((one) => one !== 'auto').map((value) => ({ value, label: value })),
  ]
}

export function RunFields({ engines, engine }: { engines: EngineInfo[]; engine: EngineInfo | undefined }) {
  const t = useText()
  return (
    <div className="field-grid">
      <Form.Item name="replicas" label={t.deployments.replicas} extra={t.deployments.form.replicasHint}>
        <InputNumber min={0} max={64} precision={0} className="full-width" />
      </Form.Item>
      <Form.Item name="engine" label={t.deployments.engine}>
        <Select options={engines.map(({ name, label }) => ({ value: name, label }))} />
      </Form.Item>
      <Form.Item name="dtype" label={t.deployments.dtype} extra={t.deployments.form.dtypeHint}>
        <Select options={withAuto(engine?.capabilities.dtypes ?? [], t.common.auto)} />
      </Form.Item>
      <Form.Item name="device" label={t.deployments.device} extra={t.deployments.form.deviceHint}>
        <Select options={withAuto(engine?.capabilities.devices ?? [], t.common.auto)} />
      </Form.Item>
    </div>
  )
}
