import { Alert, Button, Drawer, Form, Input, InputNumber, Select } from 'antd'
import { useNavigate } from 'react-router'
import { useDeployments } from '@/api/deployments'
import { useStartSuite } from '@/api/evaluations'
import { useSaid, useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { CorpusField } from '@/pages/models/domain/CorpusField'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { showFieldErrors } from '@/ui/formErrors'
import { answers } from '../form/targets'
import { BUNDLED_SETS, NEW_QUALITY, type QualityForm, RULES, toQualitySpec } from './qualityForm'

/** A new quality suite and its first run. */
export function QualityDrawer({ onClose }: { onClose: () => void }) {
  const t = useText()
  const all = useEvaluationText()
  const text = all.qualityForm
  const said = useSaid()
  const navigate = useNavigate()
  const deployments = useDeployments()
  const ready = deployments.data?.results.filter(answers) ?? []
  const start = useStartSuite()
  const [form] = Form.useForm<QualityForm>()
  const submit = (given: QualityForm) => {
    const values = { ...NEW_QUALITY, ...given }
    const served = ready.find((one) => one.id === values.target)?.name ?? ''
    const stamp = new Date().toISOString().slice(0, 19).replace('T', ' ')
    start.mutate(
      {
        name: values.name.trim() || `${served} · ${all.quality.title} · ${stamp}`,
        spec: { quality: toQualitySpec(values) },
        target: { deployment: values.target },
        seed: null,
      },
      {
        onSuccess: (run) => navigate(`/evaluations/runs/${run.id}`),
        onError: (error) => showFieldErrors(form, error, said),
      },
    )
  }
  return (
    <Drawer
      open
      title={all.quality.start}
      size={520}
      onClose={onClose}
      extra={
        <Button type="primary" loading={start.isPending} disabled={!ready[0]} onClick={() => form.submit()}>
          {all.form.submit}
        </Button>
      }
    >
      <ErrorNotice error={deployments.error} onRetry={() => deployments.refetch()} />
      {deployments.data && !ready[0] && (
        <Alert type="info" showIcon title={all.form.noTarget} className="notice" />
      )}
      {deployments.data && (
        <Form
          form={form}
          layout="vertical"
          requiredMark={false}
          onFinish={submit}
          initialValues={{ ...NEW_QUALITY, target: ready[0]?.id }}
        >
          <Form.Item
            name="target"
            label={all.form.target}
            extra={all.form.targetHint}
            rules={[{ required: true, message: t.common.required(all.form.target) }]}
          >
            <Select options={ready.map((one) => ({ value: one.id, label: one.name }))} />
          </Form.Item>
          <Form.Item name="bundled" label={text.bundled} extra={text.bundledHint} rules={[oneSet(text.none)]}>
            <Select
              mode="multiple"
              options={BUNDLED_SETS.map((value) => ({ value, label: text.sets[value] ?? value }))}
            />
          </Form.Item>
          <Form.Item name="rows" label={text.rows} extra={text.rowsHint}>
            <InputNumber min={1} precision={0} className="full-width" />
          </Form.Item>
          <h2 className="form-part">{text.own}</h2>
          <p className="muted">{text.ownHint}</p>
          <CorpusField />
          <Form.Item name="rule" label={text.rule}>
            <Select options={RULES.map((value) => ({ value, label: text.rules[value] ?? value }))} />
          </Form.Item>
          <Form.Item name="at_least" label={text.atLeast} extra={text.atLeastHint}>
            <InputNumber min={0} max={100} className="full-width" />
          </Form.Item>
          <Form.Item name="name" label={all.form.suiteName} extra={all.form.nameHint}>
            <Input maxLength={100} autoComplete="off" />
          </Form.Item>
          <ErrorNotice error={start.error} />
        </Form>
      )}
    </Drawer>
  )
}

/** Something must be asked: a set of ours or one of the team's. */
function oneSet(message: string) {
  return ({ getFieldValue }: { getFieldValue: (name: string) => unknown }) => ({
    validator: (_: unknown, value: string[]) =>
      value.length > 0 || getFieldValue('corpus') ? Promise.resolve() : Promise.reject(new Error(message)),
  })
}
