import { Progress } from 'antd'
import { isEnded, type Run } from '@/api/evaluations'
import { useLocale, useSaid } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { Status } from '@/ui/Status'
import { percent } from '@/ui/units'
import { DecisionTag } from '../result/DecisionTag'
import { progressText } from './progressText'

/** How a run came out: the verdict once it has one, else its state, with the reason beneath. */
export function RunStatus({ run, reason = true }: { run: Run; reason?: boolean }) {
  const said = useSaid()
  const text = useEvaluationText()
  const told = run.state === 'completed' && run.verdict !== ''
  return (
    <>
      <span className="inline">
        {told && run.verdict !== '' ? <DecisionTag verdict={run.verdict} /> : <Status state={run.state} />}
        {!told && run.verdict !== '' && isEnded(run.state) && <DecisionTag verdict={run.verdict} />}
        {run.regressions.length > 0 && (
          <span className="tone-error small">{text.runs.regressions(run.regressions.length)}</span>
        )}
      </span>
      {reason && run.reason && <div className="muted small cell-text">{said(run.reason)}</div>}
      {run.state === 'running' && <RunProgress run={run} />}
    </>
  )
}

export function RunProgress({ run }: { run: Run }) {
  const text = useEvaluationText()
  const locale = useLocale()
  const list = (parts: string[]) => new Intl.ListFormat(locale, { type: 'unit' }).format(parts)
  if (run.state !== 'running') return null
  return (
    <div className="job-progress">
      <Progress
        percent={percent(run.progress)}
        size="small"
        status="active"
        aria-label={`${run.suite_name}: ${percent(run.progress)} %`}
      />
      {run.progress_text && (
        <span className="muted small">{progressText(run.progress_text, text, list)}</span>
      )}
    </div>
  )
}
