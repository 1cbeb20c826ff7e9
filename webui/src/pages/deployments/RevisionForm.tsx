import { Alert, Button, Card, Form } from 'antd'
import { useEffect, useRef, useState } from 'react'
import { ApiError } from '@/api/client'
import { useEngines } from '@/api/deployments'
import type { Deployment, EstimateInput } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { useSpeculationText } from '@/i18n/speculation'
import { isRefusal, PastGate } from '@/pages/evaluations/PastGate'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { showFieldErrors } from '@/ui/formErrors'
import { EstimatePanel } from './EstimatePanel'
import { AdvancedFields } from './fields/AdvancedFields'
import { RunFields } from './fields/RunFields'
import { ServedFields } from './fields/ServedFields'
import { type FormValues, toEstimate } from './formValues'
import { SpeculationFields } from './speculation/SpeculationFields'

const ESTIMATE_AFTER_MS = 300

/** Fields at the left; at the right, as one types, what it would take. */
export function RevisionForm(props: {
  initial: FormValues
  edits?: Deployment
  error: Error | null
  pending: boolean
  effect?: (values: FormValues) => string
  submitText: (values: FormValues) => string
  onSubmit: (values: FormValues, force: boolean) => void
}) {
  const t = useText()
  const said = useSaid()
  const speculation = useSpeculationText()
  const [form] = Form.useForm<FormValues>()
  const [values, setValues] = useState(props.initial)
  const [estimated, setEstimated] = useState<EstimateInput | null>(() => toEstimate(props.initial))
  const engines = useEngines()
  const timer = useRef(0)
  const { error } = props
  useEffect(() => showFieldErrors(form, error, said), [form, error, said])
  useEffect(() => () => clearTimeout(timer.current), [])

  const change = () => {
    const next = { ...props.initial, ...form.getFieldsValue(true) } as FormValues
    setValues(next)
    clearTimeout(timer.current)
    timer.current = window.setTimeout(() => setEstimated(toEstimate(next)), ESTIMATE_AFTER_MS)
  }
  const submit = (force: boolean) =>
    props.onSubmit({ ...props.initial, ...form.getFieldsValue(true) } as FormValues, force)
  const engine = engines.data?.find((one) => one.name === values.engine)
  const proposers = engine?.capabilities.proposers ?? []
  const effect = props.effect?.(values)
  return (
    <Form
      form={form}
      layout="vertical"
      requiredMark={false}
      initialValues={props.initial}
      onValuesChange={change}
      onFinish={() => submit(false)}
      scrollToFirstError={{ focus: true }}
      className="deploy-form"
    >
      <div className="stack">
        <Card title={t.deployments.form.whatSection}>
          <ServedFields
            editing={props.edits !== undefined}
            onSuggestName={(name) => {
              if (props.edits || form.isFieldTouched('name')) return
              form.setFieldValue('name', name)
              change()
            }}
          />
        </Card>
        <Card title={t.deployments.form.howSection}>
          <RunFields engines={engines.data ?? []} engine={engine} />
        </Card>
        {proposers.length > 0 && (
          <Card title={speculation.title}>
            <SpeculationFields proposers={proposers} />
          </Card>
        )}
        <AdvancedFields engine={engine} openAtFirst={props.edits !== undefined} />
      </div>
      <aside className="deploy-side" aria-label={t.deployments.estimate.title}>
        <EstimatePanel input={estimated} />
        {effect && <Alert type="info" showIcon title={effect} />}
        <ErrorNotice
          error={error}
          action={
            error instanceof ApiError &&
            error.code === 'does_not_fit' && (
              <Button danger loading={props.pending} onClick={() => submit(true)}>
                {t.deployments.form.force}
              </Button>
            )
          }
        />
        {isRefusal(error) && <PastGate />}
        <Button type="primary" size="large" htmlType="submit" block loading={props.pending}>
          {props.submitText(values)}
        </Button>
      </aside>
    </Form>
  )
}
