import { Button, Popconfirm } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { Link } from 'react-router'
import { type Baseline, useBaselines, useRemove } from '@/api/evaluations'
import { useMayChange } from '@/api/session'
import { useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { DataTable } from '@/ui/DataTable'
import { Loaded } from '@/ui/Page'
import { Time } from '@/ui/Time'
import { useAct } from '@/ui/useAct'
import { answerOfFigures } from '../runs/runText'

export function BaselineTable() {
  const t = useText()
  const all = useEvaluationText()
  const text = all.gates
  const baselines = useBaselines()
  const columns: ColumnsType<Baseline> = [
    {
      title: text.baseline,
      render: (_, one) => (
        <div className="cell-text">
          <Link to={`/evaluations/runs/${one.run}`}>{one.suite_name}</Link>
          <div className="muted small">{one.target.name}</div>
        </div>
      ),
    },
    { title: all.runs.answer, render: (_, one) => answerOfFigures(one.figures, all) },
    {
      title: text.setBy,
      render: (_, one) => <span className="cell-text">{one.by_hand ? text.byHand : text.bySelf}</span>,
    },
    { title: text.since, render: (_, one) => <Time at={one.updated_at} /> },
    { title: t.common.actions, render: (_, one) => <Remove baseline={one} /> },
  ]
  return (
    <Loaded query={baselines} rows={2}>
      {({ results }) => (
        <DataTable<Baseline>
          size="small"
          columns={columns}
          dataSource={results}
          locale={{ emptyText: text.baselinesEmpty }}
          pagination={{ pageSize: 15, hideOnSinglePage: true, showSizeChanger: false }}
        />
      )}
    </Loaded>
  )
}

function Remove({ baseline }: { baseline: Baseline }) {
  const t = useText()
  const text = useEvaluationText().gates
  const act = useAct()
  const mayChange = useMayChange()
  const remove = useRemove('baselines')
  return (
    <Popconfirm
      title={t.common.delete}
      description={<div className="confirm-text">{text.removeBaseline}</div>}
      okText={t.common.delete}
      cancelText={t.common.close}
      okButtonProps={{ danger: true }}
      onConfirm={() => remove.mutate(baseline.id, { onError: act.failed })}
    >
      <Button size="small" danger disabled={!mayChange} loading={remove.isPending}>
        {t.common.delete}
      </Button>
    </Popconfirm>
  )
}
