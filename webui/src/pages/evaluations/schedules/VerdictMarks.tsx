import { Tooltip } from 'antd'
import { Link } from 'react-router'
import { type Run, useRuns } from '@/api/evaluations'
import { useLocale, useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { type Mark, markOf } from './marks'

const SHOWN = 10

const SIGNS: Record<Mark, string> = {
  pass: '✓',
  fail: '✗',
  undetermined: '?',
  invalid: '⊘',
  running: '…',
  none: '–',
}

/** The last runs of a schedule, the newest at the right: a sign, a colour and a word each. */
export function VerdictMarks({ schedule }: { schedule: string }) {
  const text = useEvaluationText().schedules
  const runs = useRuns({ schedule, page_size: SHOWN })
  if (runs.error) return <span className="muted">–</span>
  if (!runs.data) return null
  if (runs.data.results.length === 0) return <span className="muted">{text.verdictsNone}</span>
  return (
    <span className="verdict-marks">
      {[...runs.data.results].reverse().map((run) => (
        <VerdictMark key={run.id} run={run} />
      ))}
    </span>
  )
}

function VerdictMark({ run }: { run: Run }) {
  const t = useText()
  const all = useEvaluationText()
  const locale = useLocale()
  const mark = markOf(run)
  const word = run.verdict !== '' ? all.verdicts[run.verdict] : t.states[run.state]
  const when = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'short' }).format(
    new Date(run.created_at),
  )
  const worse = run.regressions.length > 0 ? ` · ${all.runs.regressions(run.regressions.length)}` : ''
  const label = `${when}: ${word}${worse}`
  return (
    <Tooltip title={label}>
      <Link to={`/evaluations/runs/${run.id}`} className={`verdict-mark mark-of-${mark}`} aria-label={label}>
        {SIGNS[mark]}
      </Link>
    </Tooltip>
  )
}
