import type { RunDetail } from '@/api/evaluations'
import type { ResultDoc } from '@/api/evaluationTypes'

/** Why two runs may not be comparable; the console has words for each. */
export type Unlike =
  | 'definitions'
  | 'suite'
  | 'suiteVersion'
  | 'load'
  | 'closedLoop'
  | 'lengths'
  | 'sameSeed'
  | 'prefix'
  | 'invalid'
  | 'unfinished'
  | 'client'

/** Points of the prefix hit rate that two runs may differ by. */
const PREFIX_POINTS = 0.05
const LENGTHS = 0.05

/** What is not alike in two runs, the gravest first. */
export function unlike(reference: RunDetail, other: RunDetail): Unlike[] {
  const found: Unlike[] = []
  const both = [reference, other]
  if (both.some((run) => run.verdict === 'invalid')) found.push('invalid')
  if (both.some((run) => run.state !== 'completed')) found.push('unfinished')
  const [a, b] = [reference.results.load, other.results.load]
  if (a && b) {
    if (a.definitions !== b.definitions) found.push('definitions')
    if (a.spec?.load?.kind !== b.spec?.load?.kind) found.push('load')
    if ([a, b].some((one) => one.spec?.load?.kind === 'concurrency')) found.push('closedLoop')
    if (
      differ(lengthOf(a, 'prompt'), lengthOf(b, 'prompt')) ||
      differ(lengthOf(a, 'output'), lengthOf(b, 'output'))
    ) {
      found.push('lengths')
    }
    if (apart(hitsOf(a), hitsOf(b))) found.push('prefix')
    if (a.seed === b.seed) found.push('sameSeed')
    if (processes(a) !== processes(b)) found.push('client')
  }
  if (reference.suite !== other.suite) found.push('suite')
  else if (reference.suite_version !== other.suite_version) found.push('suiteVersion')
  return found
}

function lengthOf(result: ResultDoc, part: string): number | null {
  return result.dataset.lengths[part]?.mean ?? null
}

function differ(a: number | null, b: number | null): boolean {
  return a !== null && b !== null && Math.abs(a - b) > LENGTHS * Math.max(a, b)
}

/** Mean over the levels that told it. */
function hitsOf(result: ResultDoc): number | null {
  const told = result.levels.flatMap(({ prefix }) => prefix.measured ?? [])
  return told.length === 0 ? null : told.reduce((sum, one) => sum + one, 0) / told.length
}

function apart(a: number | null, b: number | null): boolean {
  return a !== null && b !== null && Math.abs(a - b) > PREFIX_POINTS
}

function processes(result: ResultDoc): unknown {
  return result.spec?.processes ?? 1
}
