import { Alert, Button, Collapse, Drawer, Form, Input, InputNumber, Select } from 'antd'
import { useNavigate } from 'react-router'
import { useDeployments } from '@/api/deployments'
import { useStartSuite } from '@/api/evaluations'
import { useSaid, useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { showFieldErrors } from '@/ui/formErrors'
import { formatSeconds } from '@/ui/units'
import { DataFields } from './DataFields'
import { LoadFields } from './LoadFields'
import { ObjectiveFields } from './ObjectiveFields'
import { presetOf, SCENARIOS } from './presets'
import { leastSeconds, NEW_RUN, type RunForm, toSpec } from './runForm'
import { answers } from './targets'

type Values = RunForm & { target: string }

/** A new suite and its first run, or, with `from`, the settings of a run that there was, to be changed. */
export function RunDrawer(props: { onClose: () => void; target?: string; from?: Partial<RunForm> }) {
  const { onClose, target, from } = props
  const t = useText()
  const text = useEvaluationText().form
  const said = useSaid()
  const navigate = useNavigate()
  const deployments = useDeployments()
  const ready = deployments.data?.results.filter(answers) ?? []
  const start = useStartSuite()
  const [form] = Form.useForm<Values>()
  const submit = (given: Values) => {
    // Fields of choices that were not taken are not in the form; the defaults stand for them.
    const values = { ...NEW_RUN, ...from, ...given }
    const served = ready.find((one) => one.id === values.target)
    const scenario = text.scenarios[values.scenario] ?? values.scenario
    const name = values.name.trim() || `${served?.name ?? ''} · ${scenario} · ${stamp(new Date())}`
    start.mutate(
      {
        name,
        spec: { load: toSpec({ ...values, name }) },
        target: { deployment: values.target },
        seed: values.seed,
      },
      {
        onSuccess: (run) => navigate(`/evaluations/runs/${run.id}`),
        onError: (error) => showFieldErrors(form, error, said),
      },
    )
  }
  const chooseScenario = (name: string) => form.setFieldsValue(presetOf(name))
  const first = ready.find((one) => one.id === target) ?? ready[0]
  return (
    <Drawer
      open
      title={text.title}
      size={560}
      onClose={onClose}
      extra={
        <Button type="primary" loading={start.isPending} onClick={() => form.submit()} disabled={!first}>
          {text.submit}
        </Button>
      }
    >
      <ErrorNotice error={deployments.error} onRetry={() => deployments.refetch()} />
      {deployments.data && !first && <Alert type="info" showIcon title={text.noTarget} className="notice" />}
      {deployments.data && (
        <Form
          form={form}
          layout="vertical"
          requiredMark={false}
          onFinish={submit}
          initialValues={{ ...NEW_RUN, ...from, target: first?.id }}
        >
          <Form.Item
            name="target"
            label={text.target}
            extra={text.targetHint}
            rules={[{ required: true, message: t.common.required(text.target) }]}
          >
            <Select
              showSearch={{ optionFilterProp: 'label' }}
              options={ready.map((one) => ({ value: one.id, label: one.name }))}
            />
          </Form.Item>
          <Form.Item name="scenario" label={text.scenario} extra={text.scenarioHint}>
            <Select
              onChange={chooseScenario}
              options={SCENARIOS.map((value) => ({ value, label: text.scenarios[value] ?? value }))}
            />
          </Form.Item>
          <h2 className="form-part">{text.data}</h2>
          <DataFields />
          <h2 className="form-part">{text.load}</h2>
          <LoadFields />
          <h2 className="form-part">{text.slo}</h2>
          <ObjectiveFields />
          <Duration />
          <Form.Item name="name" label={text.suiteName} extra={text.nameHint}>
            <Input maxLength={100} autoComplete="off" />
          </Form.Item>
          <Collapse
            ghost
            items={[{ key: 'more', label: text.advanced, children: <MoreFields />, forceRender: true }]}
          />
          <ErrorNotice error={start.error} />
        </Form>
      )}
    </Drawer>
  )
}

function MoreFields() {
  const text = useEvaluationText().form
  return (
    <div className="field-grid">
      <Form.Item name="seed" label={text.seed} extra={text.seedHint}>
        <InputNumber min={0} precision={0} className="full-width" />
      </Form.Item>
      <Form.Item name="timeout_s" label={text.timeout}>
        <InputNumber min={1} max={3600} className="full-width" />
      </Form.Item>
      <Form.Item name="processes" label={text.processes}>
        <InputNumber min={1} max={64} precision={0} className="full-width" />
      </Form.Item>
      <Form.Item name="max_levels" label={text.maxLevels}>
        <InputNumber min={2} max={64} precision={0} className="full-width" />
      </Form.Item>
      <Form.Item name="tolerance" label={text.tolerance}>
        <InputNumber min={1} max={50} className="full-width" />
      </Form.Item>
    </div>
  )
}

function Duration() {
  const text = useEvaluationText().form
  const values = Form.useWatch([], Form.useFormInstance<Values>())
  const seconds = values ? leastSeconds({ ...NEW_RUN, ...values }) : null
  return seconds === null ? null : <p className="muted">{text.estimate(formatSeconds(seconds))}</p>
}

/** To the second: names of suites are unique in a team. */
function stamp(now: Date): string {
  return now.toISOString().slice(0, 19).replace('T', ' ')
}
