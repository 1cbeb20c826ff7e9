import { FieldTimeOutlined, PlusOutlined } from '@ant-design/icons'
import { Button, Switch, Tooltip } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { useState } from 'react'
import { Link } from 'react-router'
import { type Schedule, useSaveSchedule, useSchedules, useSuites } from '@/api/evaluations'
import { useMayChange } from '@/api/session'
import { usePreferences } from '@/app/preferences'
import { useLocale, useSaid, useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { DataTable } from '@/ui/DataTable'
import { EmptyState } from '@/ui/EmptyState'
import { Loaded } from '@/ui/Page'
import { useAct } from '@/ui/useAct'
import { EvaluationPage } from '../EvaluationPage'
import { RowActions } from '../RowActions'
import { ScheduleDrawer } from './ScheduleDrawer'
import { VerdictMarks } from './VerdictMarks'

export function SchedulesPage() {
  const text = useEvaluationText().schedules
  const mayChange = useMayChange()
  const schedules = useSchedules()
  const suites = useSuites()
  const [edited, setEdited] = useState<Schedule | 'new' | null>(null)
  const noSuites = suites.data?.results.length === 0
  const create = (
    <Button
      type="primary"
      icon={<PlusOutlined />}
      disabled={!mayChange || noSuites}
      onClick={() => setEdited('new')}
    >
      {text.create}
    </Button>
  )
  return (
    <EvaluationPage title={text.title} lead={text.lead} actions={create}>
      <Loaded query={schedules}>
        {({ results }) =>
          results.length === 0 ? (
            <EmptyState
              icon={<FieldTimeOutlined />}
              title={text.emptyTitle}
              text={noSuites ? text.noSuites : text.emptyText}
              action={noSuites ? <StartRun /> : create}
            />
          ) : (
            <ScheduleTable schedules={results} onEdit={setEdited} />
          )
        }
      </Loaded>
      {edited !== null && (
        <ScheduleDrawer schedule={edited === 'new' ? null : edited} onClose={() => setEdited(null)} />
      )}
    </EvaluationPage>
  )
}

function StartRun() {
  const text = useEvaluationText().runs
  const mayChange = useMayChange()
  return (
    <Link to="/evaluations?new=load">
      <Button type="primary" disabled={!mayChange}>
        {text.start}
      </Button>
    </Link>
  )
}

function ScheduleTable(props: { schedules: Schedule[]; onEdit: (schedule: Schedule) => void }) {
  const t = useText()
  const said = useSaid()
  const text = useEvaluationText().schedules
  const { language } = usePreferences()
  const columns: ColumnsType<Schedule> = [
    {
      title: t.common.name,
      render: (_, one) => (
        <div className="cell-text">
          {one.name}
          <div className="muted small">
            {one.suite_name} → {one.target.name}
          </div>
        </div>
      ),
    },
    {
      title: text.when,
      render: (_, one) => (
        <div className="cell-text">
          {one.text[language]}
          <div className="muted small">
            <code>{one.cron}</code>
          </div>
        </div>
      ),
    },
    { title: text.nextShort, render: (_, one) => <NextTimes schedule={one} /> },
    {
      title: text.verdicts,
      render: (_, one) => (
        <>
          <VerdictMarks schedule={one.id} />
          {one.reason && <div className="tone-warning small cell-text">{said(one.reason)}</div>}
        </>
      ),
    },
    { title: text.enabled, render: (_, one) => <Enabled schedule={one} /> },
    { title: t.common.actions, render: (_, one) => <Actions schedule={one} onEdit={props.onEdit} /> },
  ]
  return <DataTable<Schedule> columns={columns} dataSource={props.schedules} />
}

/** The next of its times, all five on hover, in its own zone. */
function NextTimes({ schedule }: { schedule: Schedule }) {
  const text = useEvaluationText().schedules
  const locale = useLocale()
  const [first] = schedule.next_times
  if (!first) return <span className="muted">{text.disabledSince}</span>
  const told = (time: string) =>
    new Intl.DateTimeFormat(locale, {
      weekday: 'short',
      month: 'short',
      day: 'numeric',
      hour: '2-digit',
      minute: '2-digit',
      timeZone: schedule.timezone,
    }).format(new Date(time))
  return (
    <Tooltip
      title={
        <>
          {text.next} ({schedule.timezone})
          {schedule.next_times.map((time) => (
            <div key={time}>{told(time)}</div>
          ))}
        </>
      }
    >
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the other times must be reachable by keyboard */}
      <span tabIndex={0} className="nowrap">
        {told(first)}
      </span>
    </Tooltip>
  )
}

function Enabled({ schedule }: { schedule: Schedule }) {
  const text = useEvaluationText().schedules
  const act = useAct()
  const mayChange = useMayChange()
  const save = useSaveSchedule(schedule.id)
  return (
    <Switch
      size="small"
      checked={schedule.enabled}
      loading={save.isPending}
      disabled={!mayChange}
      aria-label={text.enable(schedule.name)}
      onChange={(enabled) => save.mutate({ enabled }, { onError: act.failed })}
    />
  )
}

function Actions({ schedule, onEdit }: { schedule: Schedule; onEdit: (schedule: Schedule) => void }) {
  const text = useEvaluationText().schedules
  const mayChange = useMayChange()
  return (
    <RowActions
      what="schedules"
      id={schedule.id}
      mayChange={mayChange}
      title={text.remove}
      effect={text.removeEffect}
      onEdit={() => onEdit(schedule)}
    />
  )
}
