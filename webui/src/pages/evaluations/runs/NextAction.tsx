import { Button } from 'antd'
import { Link } from 'react-router'
import type { RunDetail } from '@/api/evaluations'
import { useMayChange } from '@/api/session'
import { useEvaluationText } from '@/i18n/evaluations'
import { useRunAgain } from './RunActions'

type Next = 'again' | 'plan' | 'deployment'

/** What helps against each finding; where nothing is named here, the remedy's words are all there is. */
export const NEXT: Record<string, Next> = {
  cache_inflated: 'again',
  non_monotone: 'again',
  slo_unreachable: 'plan',
  queue_build_up: 'plan',
  kv_full: 'plan',
  preemption: 'deployment',
  cache_below_expected: 'deployment',
  endpoint_down: 'deployment',
  error_storm: 'deployment',
}

export function NextAction({ code, run }: { code: string; run: RunDetail }) {
  const text = useEvaluationText().findingParts.act
  const mayChange = useMayChange()
  const again = useRunAgain(run)
  const next = NEXT[code]
  if (!next || run.target.id === null) return null
  if (next === 'again') {
    return (
      <Button size="small" disabled={!mayChange} loading={again.pending} onClick={again.start}>
        {text.again}
      </Button>
    )
  }
  if (next === 'plan') {
    return (
      <Link to={`/planner${run.version ? `?version=${run.version}` : ''}`}>
        <Button size="small">{text.plan}</Button>
      </Link>
    )
  }
  if (run.target.kind !== 'deployment') return null
  return (
    <Link to={`/deployments/${run.target.id}`}>
      <Button size="small">{text.deployment}</Button>
    </Link>
  )
}
