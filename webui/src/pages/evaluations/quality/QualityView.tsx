import { Card } from 'antd'
import { type RunDetail, useRun } from '@/api/evaluations'
import type { ResultDoc } from '@/api/evaluationTypes'
import { useEvaluationText } from '@/i18n/evaluations'
import { useUrlState } from '@/ui/useUrlState'
import { EnvironmentCard } from '../result/EnvironmentCard'
import { FindingCard, ValidityAlerts } from '../result/Findings'
import { gathered, isGrave } from '../result/gathered'
import { GateTable } from './GateTable'
import { SampleBrowser } from './SampleBrowser'
import { TaskTable } from './TaskTable'

/** The quality part of a run: what its gates decided, each task with its interval, and the samples themselves. */
export function QualityView({ run, result }: { run: RunDetail; result: ResultDoc }) {
  const text = useEvaluationText().quality
  const baseline = useRun(run.baseline ?? undefined)
  const [asked, setAsked] = useUrlState('task')
  const { quality } = result
  const found = gathered(result)
  const grave = found.filter((one) => isGrave(one, result))
  if (quality === null) return null
  const task = quality.tasks.find((one) => one.name === asked) ?? quality.tasks[0]
  return (
    <div className="stack" data-testid="quality">
      <ValidityAlerts found={grave} />
      <Card size="small" title={text.title}>
        <div className="stack">
          {quality.gates.length > 0 && <GateTable gates={quality.gates} />}
          <TaskTable
            tasks={quality.tasks}
            baseline={baseline.data?.results.quality?.quality?.tasks ?? []}
            chosen={task?.name}
            onChoose={setAsked}
          />
        </div>
      </Card>
      {task?.samples && <SampleBrowser key={task.name} run={run} task={task} baseline={baseline.data} />}
      <FindingCard found={found.filter((one) => !grave.includes(one))} any={found.length > 0} />
      {!run.results.load && <EnvironmentCard result={result} />}
    </div>
  )
}
