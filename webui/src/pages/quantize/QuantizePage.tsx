import { CompressOutlined } from '@ant-design/icons'
import { Button, Card, Form } from 'antd'
import { useEffect, useState } from 'react'
import { Link, useNavigate, useSearchParams } from 'react-router'
import { useReadyVersions } from '@/api/models'
import { useNodes } from '@/api/operations'
import { type Scheme, useQuantize, useQuantizePlan, useSchemes } from '@/api/quantization'
import { useMayChange } from '@/api/session'
import type { Version } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { EmptyState } from '@/ui/EmptyState'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { showFieldErrors } from '@/ui/formErrors'
import { Loaded, Page } from '@/ui/Page'
import { useAct } from '@/ui/useAct'
import { BaseFields } from './BaseFields'
import { CalibrationFields } from './CalibrationFields'
import { PlanPanel } from './PlanPanel'
import { deviceOf, inputOf, NEW_FORM, type QuantizeForm } from './quantizeForm'
import { SchemeCards } from './SchemeCards'
import { SchemeOptions } from './SchemeOptions'
import './quantize.css'

/** What to make of a version, and what would come of it, before anything starts. */
export function QuantizePage() {
  const text = useQuantizeText()
  const schemes = useSchemes(undefined)
  const versions = useReadyVersions()
  const nodes = useNodes()
  return (
    <Page title={text.title} lead={text.lead}>
      <Loaded query={versions}>
        {(ready) =>
          ready.length === 0 ? (
            <EmptyState
              icon={<CompressOutlined />}
              title={text.noVersions}
              text={text.lead}
              action={
                <Link to="/models">
                  <Button type="primary">{text.importModel}</Button>
                </Link>
              }
            />
          ) : (
            <Loaded query={schemes}>
              {(known) => (
                <Loaded query={nodes}>
                  {({ results }) => <Start all={known} versions={ready} device={deviceOf(known, results)} />}
                </Loaded>
              )}
            </Loaded>
          )
        }
      </Loaded>
    </Page>
  )
}

const PLAN_AFTER_MS = 300

function Start({ all, versions, device }: { all: Scheme[]; versions: Version[]; device: string }) {
  const t = useText()
  const text = useQuantizeText()
  const said = useSaid()
  const act = useAct()
  const navigate = useNavigate()
  const mayChange = useMayChange()
  const [params] = useSearchParams()
  const [form] = Form.useForm<QuantizeForm>()
  const named = (params.get('schemes') ?? '').split(',')
  const [initial] = useState<QuantizeForm>({
    ...NEW_FORM,
    device,
    version: params.get('version') ?? versions.find(isBase)?.id,
    schemes: all.map(({ name }) => name).filter((name) => named.includes(name)),
  })
  const watched: Partial<QuantizeForm> | undefined = Form.useWatch([], { form, preserve: true })
  const values = { ...initial, ...watched }
  const schemes = useSchemes(values.version).data ?? all
  const chosen = schemes.filter(({ name }) => values.schemes.includes(name))
  const version = values.version ?? ''
  const settled = useSettled(watched, PLAN_AFTER_MS)
  const input = inputOf({ ...initial, ...settled }, schemes)
  const plan = useQuantizePlan(version, input)
  const sizes = useQuantizePlan(version, inputOf({ ...NEW_FORM, ...everything(values, schemes) }, schemes))
  const start = useQuantize(version)
  const problems = plan.data?.plans.flatMap((one) => one.problems) ?? []
  const blocked = input !== null && problems.some((found) => found.severity === 'error')
  const submit = () => {
    const asked = inputOf({ ...initial, ...form.getFieldsValue(true) }, schemes)
    if (!asked) return
    start.mutate(asked, {
      onSuccess: (made) => {
        act.done(text.started(made.length))
        navigate(`/quantize/${version}`)
      },
      onError: (error) => showFieldErrors(form, error, said),
    })
  }
  return (
    <Form
      form={form}
      layout="vertical"
      requiredMark={false}
      initialValues={initial}
      onFinish={submit}
      scrollToFirstError={{ focus: true }}
      className="deploy-form"
    >
      <div className="stack">
        <Card title={text.what} size="small">
          <BaseFields versions={versions} schemes={schemes} />
        </Card>
        <Card title={text.schemes} size="small">
          <p className="muted">{text.schemesHint}</p>
          <Form.Item
            name="schemes"
            rules={[{ required: true, type: 'array', min: 1, message: text.chooseOne }]}
          >
            <SchemeCards schemes={schemes} device={values.device} plans={sizes.data?.plans ?? []} />
          </Form.Item>
        </Card>
        <CalibrationFields chosen={chosen} values={values} />
        <SchemeOptions chosen={chosen} />
      </div>
      <aside className="deploy-side plan-side" aria-label={text.plan}>
        <PlanPanel plan={input ? plan : sizes.error ? sizes : null} schemes={schemes} ranks={values.tp} />
        <ErrorNotice error={start.error} />
        {blocked && <span className="tone-error">{text.blocked}</span>}
        <Button
          type="primary"
          size="large"
          htmlType="submit"
          block
          disabled={!mayChange || blocked}
          title={mayChange ? undefined : t.common.viewerOnly}
          loading={start.isPending}
        >
          {text.submit(values.schemes.length)}
        </Button>
      </aside>
    </Form>
  )
}

/** The value once it has stayed the same for a while: who types is not asked about at every key. */
function useSettled<Value>(value: Value, ms: number): Value {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms)
    return () => clearTimeout(timer)
  }, [value, ms])
  return settled
}

/** Not made by a job of ours: from those one starts again only where one means to. */
function isBase(version: Version): boolean {
  return version.source_kind !== 'job'
}

/** All schemes with their defaults: what the cards tell of size. */
function everything({ version, device, tp }: QuantizeForm, schemes: Scheme[]) {
  return { version, device, tp, schemes: schemes.map(({ name }) => name) }
}
