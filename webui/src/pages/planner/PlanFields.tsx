import { DeleteOutlined, PlusOutlined } from '@ant-design/icons'
import { Button, Card, Form, InputNumber, Segmented, Select, Switch } from 'antd'
import { useDeployments } from '@/api/deployments'
import { useReadyVersions } from '@/api/models'
import { type PlanRequest, useFittedProfile } from '@/api/planner'
import { useMayChange } from '@/api/session'
import { useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { usePlannerText } from '@/i18n/planner'
import { ObjectiveList } from '@/pages/evaluations/form/ObjectiveFields'
import { presetOf, SCENARIOS } from '@/pages/evaluations/form/presets'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { GPUS, NEW_PLAN, type PlannerForm, profileByHand, SCHEMES, toRequest } from './plannerForm'

interface Props {
  version: string | undefined
  pending: boolean
  error: unknown
  onPlan: (request: PlanRequest) => void
}

/** What is to be served, to whom, and on what: the questions before the plan. */
export function PlanFields({ version, pending, error, onPlan }: Props) {
  const t = useText()
  const text = usePlannerText()
  const evaluation = useEvaluationText()
  const mayChange = useMayChange()
  const versions = useReadyVersions()
  const fit = useFittedProfile()
  const [form] = Form.useForm<PlannerForm>()
  const submit = (given: PlannerForm) => {
    const values = { ...NEW_PLAN, ...given }
    const scenario = evaluation.form.scenarios[values.scenario] ?? values.scenario
    if (values.source === 'hand') {
      const name = values.scenario === 'custom' ? text.byHandName(values.rate) : scenario
      return onPlan(toRequest(values, profileByHand(values, name)))
    }
    const asked = values.deployment ? { deployment: values.deployment } : {}
    fit.mutate(
      { name: text.fittedName, slo: values.slo, ...asked },
      { onSuccess: (profile) => onPlan(toRequest(values, profile)) },
    )
  }
  return (
    <Card size="small" title={text.ask} className="planner-form">
      <ErrorNotice error={versions.error} onRetry={() => versions.refetch()} />
      <Form
        form={form}
        layout="vertical"
        requiredMark={false}
        onFinish={submit}
        initialValues={{ ...NEW_PLAN, version }}
      >
        <Form.Item
          name="version"
          label={text.version}
          extra={versions.data?.length === 0 ? t.deployments.form.noVersions : undefined}
          rules={[{ required: true, message: t.common.required(text.version) }]}
        >
          <Select
            loading={versions.isPending}
            showSearch={{ optionFilterProp: 'label' }}
            options={versions.data?.map((one) => ({
              value: one.id,
              label: `${one.model_name} v${one.number}`,
            }))}
          />
        </Form.Item>
        <ProfileFields onScenario={(name) => form.setFieldsValue(profilePreset(name))} />
        <h2 className="form-part">{evaluation.form.slo}</h2>
        <ObjectiveList />
        <h2 className="form-part">{text.hardware}</h2>
        <HardwareFields />
        <ErrorNotice error={fit.error ?? error} />
        <Button
          type="primary"
          block
          disabled={!mayChange}
          loading={pending || fit.isPending}
          onClick={() => form.submit()}
        >
          {text.submit}
        </Button>
      </Form>
    </Card>
  )
}

/** A scenario of the load tests, as a profile's fields. */
function profilePreset(name: string): Partial<PlannerForm> {
  const { prefix, prompt, output, slo, dataset } = presetOf(name)
  if (prompt === undefined || output === undefined || slo === undefined) return {}
  return { user: prompt, output, slo, prefix: dataset === 'shared_prefix' ? prefix : 0, varied: true }
}

function ProfileFields({ onScenario }: { onScenario: (name: string) => void }) {
  const text = usePlannerText()
  const evaluation = useEvaluationText().form
  const deployments = useDeployments()
  const source: PlannerForm['source'] = Form.useWatch('source') ?? 'hand'
  return (
    <>
      <Form.Item name="source" label={text.traffic}>
        <Segmented
          block
          aria-label={text.traffic}
          options={(['hand', 'usage'] as const).map((value) => ({ value, label: text.sources[value] }))}
        />
      </Form.Item>
      {source === 'usage' ? (
        <Form.Item name="deployment" label={text.ofDeployment} extra={text.usageHint}>
          <Select
            allowClear
            showSearch={{ optionFilterProp: 'label' }}
            options={deployments.data?.results.map((one) => ({ value: one.id, label: one.name }))}
          />
        </Form.Item>
      ) : (
        <>
          <Form.Item name="scenario" label={evaluation.scenario}>
            <Select
              onChange={onScenario}
              options={SCENARIOS.map((value) => ({ value, label: evaluation.scenarios[value] ?? value }))}
            />
          </Form.Item>
          <div className="field-grid">
            <NumberField name="rate" label={text.rate} min={0.001} />
            <NumberField name="peak_factor" label={text.peak} min={1} hint={text.peakHint} />
            <NumberField name="prefix" label={text.prefix} min={0} whole />
            <NumberField name="user" label={evaluation.promptTokens} min={1} whole />
            <NumberField name="output" label={evaluation.outputTokens} min={1} whole />
            <Form.Item name="varied" label={evaluation.varied} valuePropName="checked">
              <Switch />
            </Form.Item>
          </div>
        </>
      )}
    </>
  )
}

function NumberField(props: { name: string; label: string; min: number; hint?: string; whole?: boolean }) {
  const t = useText()
  const { name, label, min, hint, whole = false } = props
  return (
    <Form.Item
      name={name}
      label={label}
      extra={hint}
      rules={[{ required: true, message: t.common.required(label) }]}
    >
      <InputNumber min={min} precision={whole ? 0 : undefined} className="full-width" />
    </Form.Item>
  )
}

function HardwareFields() {
  const text = usePlannerText()
  const options = GPUS.map(([value, label]) => ({ value, label }))
  return (
    <>
      <Form.Item name="gpus" label={text.gpus} extra={text.gpusHint}>
        <Select mode="multiple" allowClear options={options} showSearch={{ optionFilterProp: 'label' }} />
      </Form.Item>
      <div className="field-grid">
        <Form.Item name="schemes" label={text.schemes} extra={text.schemesHint}>
          <Select mode="multiple" allowClear options={SCHEMES.map((value) => ({ value, label: value }))} />
        </Form.Item>
        <NumberField name="max_gpus" label={text.maxGpus} min={1} whole />
      </div>
      <Form.List name="prices">
        {(fields, { add, remove }) => (
          <>
            {fields.map((field) => (
              <div key={field.key} className="price-fields">
                <Form.Item name={[field.name, 'gpu']} label="GPU" rules={[{ required: true }]}>
                  <Select options={options} />
                </Form.Item>
                <Form.Item name={[field.name, 'price']} label={text.price} rules={[{ required: true }]}>
                  <InputNumber min={0.001} className="full-width" />
                </Form.Item>
                <Button
                  type="text"
                  aria-label={text.removePrice}
                  icon={<DeleteOutlined />}
                  onClick={() => remove(field.name)}
                />
              </div>
            ))}
            <Button className="add-objective" icon={<PlusOutlined />} onClick={() => add({})}>
              {text.addPrice}
            </Button>
          </>
        )}
      </Form.List>
    </>
  )
}
