import { Button, Drawer, Form, Input, Select, Switch } from 'antd'
import { useDeployments } from '@/api/deployments'
import {
  type Schedule,
  type ScheduleInput,
  useSaveSchedule,
  useScheduleTimes,
  useSuites,
} from '@/api/evaluations'
import { usePreferences } from '@/app/preferences'
import { useLocale, useSaid, useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { showFieldErrors } from '@/ui/formErrors'
import { useAct } from '@/ui/useAct'
import { CRON_PRESETS, isCron, presetOf, zones } from './cron'

interface Values {
  name: string
  suite: string
  deployment?: string
  preset: string
  cron: string
  timezone: string
  run_missed: boolean
}

export function ScheduleDrawer({ schedule, onClose }: { schedule: Schedule | null; onClose: () => void }) {
  const t = useText()
  const said = useSaid()
  const text = useEvaluationText().schedules
  const act = useAct()
  const suites = useSuites()
  const deployments = useDeployments()
  const save = useSaveSchedule(schedule?.id ?? null)
  const [form] = Form.useForm<Values>()
  const preset = Form.useWatch('preset', form)
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
  const ofEndpoint = schedule?.target.kind === 'endpoint'
  const submit = ({ preset: _preset, ...values }: Values) =>
    save.mutate(values as Partial<ScheduleInput>, {
      onSuccess: () => {
        act.done(text.saved)
        onClose()
      },
      onError: (error) => showFieldErrors(form, error, said),
    })
  return (
    <Drawer
      open
      title={schedule === null ? text.create : text.edit}
      size={480}
      onClose={onClose}
      extra={
        <Button type="primary" loading={save.isPending} onClick={() => form.submit()}>
          {t.common.save}
        </Button>
      }
    >
      <Form<Values>
        form={form}
        layout="vertical"
        requiredMark={false}
        onFinish={submit}
        initialValues={{
          name: schedule?.name ?? '',
          suite: schedule?.suite,
          deployment: ofEndpoint ? undefined : schedule?.target.id,
          preset: presetOf(schedule?.cron ?? CRON_PRESETS.nightly),
          cron: schedule?.cron ?? CRON_PRESETS.nightly,
          timezone: schedule?.timezone ?? zone,
          run_missed: schedule?.run_missed ?? true,
        }}
      >
        <Form.Item
          name="name"
          label={t.common.name}
          rules={[{ required: true, message: t.common.required(t.common.name) }]}
        >
          <Input maxLength={100} autoComplete="off" />
        </Form.Item>
        <Form.Item
          name="suite"
          label={text.suite}
          rules={[{ required: true, message: t.common.required(text.suite) }]}
        >
          <Select
            showSearch={{ optionFilterProp: 'label' }}
            options={suites.data?.results.map((one) => ({ value: one.id, label: one.name }))}
          />
        </Form.Item>
        {!ofEndpoint && (
          <Form.Item
            name="deployment"
            label={text.target}
            rules={[{ required: true, message: t.common.required(text.target) }]}
          >
            <Select
              showSearch={{ optionFilterProp: 'label' }}
              options={deployments.data?.results.map((one) => ({ value: one.id, label: one.name }))}
            />
          </Form.Item>
        )}
        <Form.Item name="preset" label={text.when}>
          <Select
            onChange={(name: string) => {
              const cron = CRON_PRESETS[name as keyof typeof CRON_PRESETS]
              if (cron) form.setFieldValue('cron', cron)
            }}
            options={Object.entries(text.presets).map(([value, label]) => ({ value, label }))}
          />
        </Form.Item>
        <Form.Item
          name="cron"
          label={text.cron}
          extra={text.cronHint}
          rules={[
            {
              validator: (_, value: string) =>
                isCron(value ?? '') ? Promise.resolve() : Promise.reject(new Error(text.cronBad)),
            },
          ]}
        >
          <Input disabled={preset !== 'own'} autoComplete="off" className="code-input" />
        </Form.Item>
        <Form.Item name="timezone" label={text.zone}>
          <Select
            showSearch={{ optionFilterProp: 'label' }}
            options={zones().map((value) => ({ value, label: value }))}
          />
        </Form.Item>
        <Meaning />
        <Form.Item name="run_missed" label={text.missed} extra={text.missedHint} valuePropName="checked">
          <Switch />
        </Form.Item>
        <ErrorNotice error={save.error} />
      </Form>
    </Drawer>
  )
}

/** What the expression means in words, and its next times; asked of the platform, which will keep to it. */
function Meaning() {
  const text = useEvaluationText().schedules
  const locale = useLocale()
  const { language } = usePreferences()
  const cron: string | undefined = Form.useWatch('cron')
  const timezone: string | undefined = Form.useWatch('timezone')
  const times = useScheduleTimes(cron && timezone && isCron(cron) ? { cron, timezone } : null)
  if (times.error) return <ErrorNotice error={times.error} />
  if (!times.data) return null
  const told = new Intl.DateTimeFormat(locale, { dateStyle: 'full', timeStyle: 'short', timeZone: timezone })
  return (
    <div className="cron-meaning" aria-live="polite" data-testid="cron-meaning">
      <strong>{times.data.text[language]}</strong>
      <div className="muted small">{text.next}</div>
      <ul className="plain-list small">
        {times.data.next_times.map((time) => (
          <li key={time}>{told.format(new Date(time))}</li>
        ))}
      </ul>
    </div>
  )
}
