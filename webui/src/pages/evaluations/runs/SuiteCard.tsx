import { Button, Card, Popconfirm } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { useState } from 'react'
import { useNavigate } from 'react-router'
import { type Suite, useRemove, useStartRun, useSuites } from '@/api/evaluations'
import { useMayChange } from '@/api/session'
import { useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { DataTable } from '@/ui/DataTable'
import { Loaded } from '@/ui/Page'
import { Time } from '@/ui/Time'
import { useAct } from '@/ui/useAct'
import { TargetPicker } from '../form/TargetPicker'
import { objectiveName } from '../result/figures'

/** Settings that are kept: to be run again, scheduled, or used by a gate. */
export function SuiteCard() {
  const t = useText()
  const text = useEvaluationText()
  const suites = useSuites()
  const columns: ColumnsType<Suite> = [
    {
      title: text.runs.suite,
      render: (_, suite) => (
        <div className="cell-text">
          {suite.name}
          {suite.description && <div className="muted small">{suite.description}</div>}
        </div>
      ),
    },
    {
      title: text.form.load,
      render: (_, { spec }) => (
        <>
          {spec.load && (text.form.loads[spec.load.load?.kind ?? ''] ?? text.runs.kinds.load)}
          {spec.load && spec.quality && ' + '}
          {spec.quality && text.runs.kinds.quality}
        </>
      ),
    },
    {
      title: text.form.slo,
      render: (_, { spec }) => (
        <div className="cell-text">{spec.load?.slo?.map(objectiveName).join(', ') || '–'}</div>
      ),
    },
    { title: text.runs.changed, render: (_, suite) => <Time at={suite.updated_at} /> },
    { title: t.common.actions, render: (_, suite) => <SuiteActions suite={suite} /> },
  ]
  return (
    <Card size="small" title={text.runs.suites} className="suite-card">
      <p className="muted">{text.runs.suitesLead}</p>
      <Loaded query={suites} rows={3}>
        {({ results }) => (
          <DataTable<Suite>
            size="small"
            columns={columns}
            dataSource={results}
            locale={{ emptyText: text.runs.suitesEmpty }}
            pagination={{ pageSize: 10, hideOnSinglePage: true, showSizeChanger: false }}
          />
        )}
      </Loaded>
    </Card>
  )
}

function SuiteActions({ suite }: { suite: Suite }) {
  const t = useText()
  const text = useEvaluationText()
  const navigate = useNavigate()
  const act = useAct()
  const mayChange = useMayChange()
  const start = useStartRun()
  const remove = useRemove('suites')
  const [choosing, setChoosing] = useState(false)
  return (
    <span className="eval-actions">
      <Button size="small" disabled={!mayChange} onClick={() => setChoosing(true)}>
        {text.runs.runSuite}
      </Button>
      {choosing && (
        <TargetPicker
          title={suite.name}
          pending={start.isPending}
          error={start.error}
          onClose={() => setChoosing(false)}
          onChoose={(target) =>
            start.mutate(
              { suite: suite.id, ...target },
              { onSuccess: (run) => navigate(`/evaluations/runs/${run.id}`) },
            )
          }
        />
      )}
      <Popconfirm
        title={t.common.delete}
        description={<div className="confirm-text">{text.runs.deleteEffect}</div>}
        okText={t.common.delete}
        cancelText={t.common.close}
        okButtonProps={{ danger: true }}
        onConfirm={() => remove.mutate(suite.id, { onError: act.failed })}
      >
        <Button size="small" danger disabled={!mayChange} loading={remove.isPending}>
          {t.common.delete}
        </Button>
      </Popconfirm>
    </span>
  )
}
