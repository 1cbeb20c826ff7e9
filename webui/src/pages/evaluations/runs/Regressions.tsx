import { Alert } from 'antd'
import { Link } from 'react-router'
import type { RunDetail } from '@/api/evaluations'
import { useEvaluationText } from '@/i18n/evaluations'
import { figureName, figureValue } from './runText'

const SHOWN = 6

/** What became worse than the baseline allows: beyond its interval, and by more than matters. */
export function Regressions({ run }: { run: RunDetail }) {
  const all = useEvaluationText()
  const text = all.regression
  if (run.regressions.length === 0) return null
  const rest = run.regressions.length - SHOWN
  return (
    <Alert
      type="error"
      showIcon
      data-testid="regressions"
      title={text.title(run.regressions.length)}
      description={
        <>
          <ul className="plain-list">
            {run.regressions.slice(0, SHOWN).map((one) => (
              <li key={one.figure}>
                {text.line(
                  figureName(one.figure, all),
                  figureValue(one.baseline, one.unit),
                  figureValue(one.value, one.unit),
                  `${one.change > 0 ? '+' : '−'}${Math.abs(one.change * 100).toFixed(1)} %`,
                )}{' '}
                <span className="muted">{text.limit(figureValue(one.limit, one.unit))}</span>
              </li>
            ))}
          </ul>
          {rest > 0 && <p>{text.more(rest)}</p>}
          {text.next}
        </>
      }
      action={
        run.baseline && (
          <Link to={`/evaluations/compare?runs=${run.baseline},${run.id}`}>{all.detail.compare}</Link>
        )
      }
    />
  )
}
