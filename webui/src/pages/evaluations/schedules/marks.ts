import type { Run } from '@/api/evaluations'

export type Mark = 'pass' | 'fail' | 'undetermined' | 'invalid' | 'running' | 'none'

/** A regression is a failure, whatever the objectives say. */
export function markOf(run: Pick<Run, 'state' | 'verdict' | 'regressions'>): Mark {
  if (run.regressions.length > 0) return 'fail'
  if (run.verdict !== '') return run.verdict
  return ['waiting', 'queued', 'running'].includes(run.state) ? 'running' : 'none'
}
