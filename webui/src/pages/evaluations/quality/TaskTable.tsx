import { Button, Tooltip } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import type { QualityFigure, QualityTask } from '@/api/evaluationTypes'
import { useEvaluationText } from '@/i18n/evaluations'
import { DataTable } from '@/ui/DataTable'
import { figure, share } from '../result/figures'
import { IntervalBar } from './IntervalBar'

interface Props {
  tasks: QualityTask[]
  baseline: QualityTask[]
  chosen: string | undefined
  onChoose: (name: string) => void
}

export function TaskTable({ tasks, baseline, chosen, onChoose }: Props) {
  const text = useEvaluationText().quality
  const before = (task: QualityTask) => baseline.find((one) => one.name === task.name)
  const columns: ColumnsType<QualityTask> = [
    {
      title: text.task,
      render: (_, task) => (
        <Button
          type={task.name === chosen ? 'primary' : 'link'}
          size="small"
          aria-pressed={task.name === chosen}
          onClick={() => onChoose(task.name)}
        >
          {task.name}
        </Button>
      ),
    },
    { title: text.score, align: 'right', render: (_, task) => scoreText(primaryOf(task)) },
    {
      title: text.interval,
      render: (_, task) => (
        <IntervalBar now={primaryOf(task)} before={primaryOf(before(task))} chance={task.chance} />
      ),
    },
    { title: text.against, align: 'right', render: (_, task) => scoreText(primaryOf(before(task))) },
    {
      title: text.difference,
      align: 'right',
      render: (_, task) => <Change now={primaryOf(task)} before={primaryOf(before(task))} />,
    },
    {
      title: text.samples,
      align: 'right',
      render: (_, task) => (
        <Tooltip title={task.errors > 0 ? text.errors(task.errors) : undefined}>
          {task.measured === task.items ? task.items : `${task.measured} / ${task.items}`}
          {task.errors > 0 && <span className="tone-error"> ({task.errors})</span>}
        </Tooltip>
      ),
    },
  ]
  return <DataTable<QualityTask> rowKey="name" size="small" columns={columns} dataSource={tasks} />
}

export function primaryOf(task: QualityTask | undefined): QualityFigure | undefined {
  return task?.figures[task.primary]
}

export function scoreText(one: QualityFigure | undefined): string {
  if (!one || one.value === null) return '–'
  return one.unit === 'share'
    ? share(one.value)
    : `${figure(one.value)} ${one.unit === 'ratio' ? '' : one.unit}`.trim()
}

function Change({ now, before }: { now: QualityFigure | undefined; before: QualityFigure | undefined }) {
  if (now?.value == null || before?.value == null) return '–'
  const by = now.value - before.value
  const sign = by > 0 ? '+' : by < 0 ? '−' : ''
  return now.unit === 'share' ? `${sign}${(Math.abs(by) * 100).toFixed(1)}` : `${sign}${figure(Math.abs(by))}`
}
