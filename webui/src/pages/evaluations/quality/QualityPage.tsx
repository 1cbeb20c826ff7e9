import { AuditOutlined } from '@ant-design/icons'
import type { ColumnsType } from 'antd/es/table'
import { Link } from 'react-router'
import { type Run, useRuns } from '@/api/evaluations'
import { useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { DataTable } from '@/ui/DataTable'
import { EmptyState } from '@/ui/EmptyState'
import { Loaded } from '@/ui/Page'
import { Time } from '@/ui/Time'
import { useUrlState } from '@/ui/useUrlState'
import { EvaluationPage } from '../EvaluationPage'
import { RunStatus } from '../runs/RunStatus'
import { figureName, figureValue } from '../runs/runText'
import { QualityDrawer } from './QualityDrawer'
import { QualityStart } from './QualityStart'

const LATEST = 200
const SHOWN = 3

export function QualityPage() {
  const text = useEvaluationText().quality
  const runs = useRuns({ page_size: LATEST })
  const [asked, setAsked] = useUrlState('new')
  return (
    <EvaluationPage title={text.title} lead={text.lead} actions={<QualityStart />}>
      <Loaded query={runs}>
        {({ results }) => {
          const shown = results.filter((run) => run.parts.includes('quality'))
          return shown.length === 0 ? (
            <EmptyState
              icon={<AuditOutlined />}
              title={text.emptyTitle}
              text={text.emptyText}
              action={<QualityStart />}
            />
          ) : (
            <QualityRuns runs={shown} />
          )
        }}
      </Loaded>
      {asked !== '' && <QualityDrawer onClose={() => setAsked('')} />}
    </EvaluationPage>
  )
}

function QualityRuns({ runs }: { runs: Run[] }) {
  const t = useText()
  const all = useEvaluationText()
  const columns: ColumnsType<Run> = [
    {
      title: all.quality.run,
      render: (_, run) => (
        <div className="cell-text">
          <Link to={`/evaluations/runs/${run.id}`}>{run.suite_name}</Link>
          <div className="muted small">
            {run.target.name} {run.version_label && `· ${run.version_label}`}
          </div>
        </div>
      ),
    },
    { title: t.common.state, render: (_, run) => <RunStatus run={run} /> },
    {
      title: all.quality.score,
      render: (_, run) =>
        Object.entries(run.figures)
          .slice(0, SHOWN)
          .map(([name, one]) => (
            <div key={name}>
              {figureName(name, all)} {figureValue(one.value, one.unit)}
              {one.low !== null && one.high !== null && (
                <span className="muted small">{` (${figureValue(one.low, one.unit)} … ${figureValue(one.high, one.unit)})`}</span>
              )}
            </div>
          )),
    },
    {
      title: all.quality.baseline,
      render: (_, run) =>
        run.baseline ? (
          <Link to={`/evaluations/compare?runs=${run.baseline},${run.id}`}>{all.detail.compare}</Link>
        ) : (
          <span className="muted">{all.quality.noBaseline}</span>
        ),
    },
    { title: t.common.created, render: (_, run) => <Time at={run.created_at} /> },
  ]
  return (
    <DataTable<Run>
      columns={columns}
      dataSource={runs}
      pagination={{ pageSize: 25, hideOnSinglePage: true, showSizeChanger: false }}
    />
  )
}
