import type { ColumnsType } from 'antd/es/table'
import { Link } from 'react-router'
import { RUNS_PER_PAGE, type Run } from '@/api/evaluations'
import type { Page as PageOf } from '@/api/types'
import { useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { DataTable } from '@/ui/DataTable'
import { Time } from '@/ui/Time'
import { RunStatus } from './RunStatus'
import { answerOfFigures } from './runText'

interface Props {
  runs: PageOf<Run>
  page: number
  onPage: (page: number) => void
  chosen: string[]
  onChosen: (ids: string[]) => void
}

export function RunTable({ runs, page, onPage, chosen, onChosen }: Props) {
  const t = useText()
  const all = useEvaluationText()
  const text = all.runs
  const columns: ColumnsType<Run> = [
    {
      title: text.run,
      render: (_, run) => (
        <div className="cell-text">
          <Link to={`/evaluations/runs/${run.id}`}>{run.suite_name}</Link>
          <div className="muted small">{run.parts.map((part) => text.kinds[part] ?? part).join(' + ')}</div>
        </div>
      ),
    },
    {
      title: text.target,
      render: (_, run) => (
        <div className="cell-text">
          {run.target.name}
          {run.version_label && <div className="muted small">{run.version_label}</div>}
        </div>
      ),
    },
    { title: t.common.state, render: (_, run) => <RunStatus run={run} /> },
    { title: text.answer, render: (_, run) => answerOfFigures(run.figures, all) },
    {
      title: t.common.created,
      render: (_, run) => (
        <>
          <Time at={run.created_at} />
          {run.requested_by && <div className="muted small">{t.common.by(run.requested_by)}</div>}
        </>
      ),
    },
  ]
  return (
    <DataTable<Run>
      columns={columns}
      dataSource={runs.results}
      locale={{ emptyText: text.noMatch }}
      rowSelection={{
        selectedRowKeys: chosen,
        onChange: (keys) => onChosen(keys.map(String)),
        preserveSelectedRowKeys: true,
        // As in TermTable: antd's own box for all of them is drawn a second time in a row hidden from readers.
        columnTitle: <span className="visually-hidden">{text.compareHint}</span>,
        getCheckboxProps: (run) => ({ 'aria-label': text.chooseRun(run.suite_name) }) as object,
      }}
      pagination={{
        current: page,
        pageSize: RUNS_PER_PAGE,
        total: runs.count,
        hideOnSinglePage: true,
        showSizeChanger: false,
        onChange: onPage,
      }}
    />
  )
}
