// The sweep of a run as a chart shows it: one point a level, for one objective.

import type { Capacity, LevelResult, LevelVerdict, Objective, ResultDoc } from '@/api/evaluationTypes'
import { kneeOf, type SweepPoint } from '../charts/knee'
import { failuresOf, METRIC_NAMES, quantileKey, quantileName, summaryOf } from './figures'

export interface SweepLevel {
  index: number
  rate: number
  done: number | null
  goodput: number | null
  /** ms, the objective's quantile and its 95 % interval. */
  latency: number | null
  low: number | null
  high: number | null
  verdict: LevelVerdict
  n: number
  failed: number
}

export interface Sweep {
  levels: SweepLevel[]
  /** "P99 E2EL" */
  metricName: string
  /** ms; null without an objective. */
  limit: number | null
  capacity: Capacity | null
  /** Index of the level with the most goodput of those that pass. */
  best: number | null
  knee: SweepPoint | null
}

/** Shown where a run has no objective of its own. */
const BY_DEFAULT: Objective = { metric: 'e2el', quantile: 0.99, limit_ms: 0, start: 'intended' }

/** The objectives that a run is judged by, as its spec or its levels name them. */
export function objectivesOf(result: ResultDoc): Objective[] {
  const judged = result.levels.find((level) => level.objectives.length > 0)?.objectives
  return judged ?? result.spec?.slo ?? []
}

export function sweepOf(result: ResultDoc, objective: Objective | undefined): Sweep {
  const { metric, quantile } = objective ?? BY_DEFAULT
  const levels = result.levels
    .flatMap((level) => pointOf(level, objective ?? BY_DEFAULT) ?? [])
    .sort((a, b) => a.rate - b.rate)
  return {
    levels,
    metricName: `${quantileName(quantile)} ${METRIC_NAMES[metric]}`,
    limit: objective?.limit_ms ?? null,
    capacity: result.capacity,
    best: bestOf(result.levels)?.index ?? null,
    knee: kneeOf(
      levels
        .filter((one) => one.verdict !== 'invalid' && one.latency !== null)
        .map(({ rate, latency }) => ({ rate, latency: latency ?? 0 })),
    ),
  }
}

/** Of the steady levels that passed, the one with the most goodput, then the greatest rate; null where none passed. */
export function bestOf(levels: LevelResult[]): LevelResult | null {
  const passed = levels.filter((level) => level.decision === 'pass' && level.verdict === 'steady')
  const better = (one: LevelResult, other: LevelResult) =>
    (one.goodput ?? 0) - (other.goodput ?? 0) || (rateOf(one) ?? 0) - (rateOf(other) ?? 0)
  return passed.reduce<LevelResult | null>(
    (best, one) => (best === null || better(one, best) > 0 ? one : best),
    null,
  )
}

/** What was asked of the server: the schedule's rate, or what a closed loop came to. */
export function rateOf(level: LevelResult): number | null {
  return level.rate ?? level.offered_rate ?? level.done_rate
}

function pointOf(level: LevelResult, objective: Objective): SweepLevel | null {
  const rate = rateOf(level)
  if (rate === null || rate <= 0) return null
  const summary = summaryOf(level, objective)
  const key = quantileKey(objective.quantile)
  const [low, high] = (key && summary?.bounds?.[key]) ?? [null, null]
  return {
    index: level.index,
    rate,
    done: level.done_rate,
    goodput: level.goodput,
    latency: (key && summary?.[key]) ?? null,
    low,
    high,
    verdict: level.verdict,
    n: level.counts.offered,
    failed: failuresOf(level),
  }
}
