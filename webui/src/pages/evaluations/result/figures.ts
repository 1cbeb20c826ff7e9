// Numbers of results as people read them.

import type { LatencyMetric, LevelResult, Objective, Quantile, Summary } from '@/api/evaluationTypes'
import { formatMs, formatSeconds } from '@/ui/units'

/** Three significant digits, no trailing zeros: 0.125, 2.5, 18.3, 1240. A dash for what is no number. */
export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–'
  if (value === 0) return '0'
  if (Math.abs(value) >= 1_000) return String(Math.round(value))
  if (Math.abs(value) < 0.001) return value.toExponential(1)
  return String(Number(value.toPrecision(3)))
}

/** 0.9523 → "95.2 %" */
export function share(value: number | null | undefined, digits = 1): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–'
  return `${Number((value * 100).toFixed(digits))} %`
}

/** Latencies keep a digit more than a page's durations: 12.4 ms and 12.9 ms are two results. */
export function latency(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return '–'
  if (ms < 100) return `${Number(ms.toPrecision(3))} ms`
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 60_000) return `${Number((ms / 1_000).toPrecision(3))} s`
  return formatMs(ms)
}

/** A value of a summary in its unit. */
export function inUnit(value: number | null | undefined, unit: string): string {
  if (unit === 'ms') return latency(value)
  if (value === null || value === undefined) return '–'
  if (unit === 's') return formatSeconds(value)
  return unit ? `${figure(value)} ${unit}` : figure(value)
}

/** "233 … 252 ms": the unit once where both ends have the same; an open end is an infinity. */
export function rangeText(low: number | null, high: number | null, unit: string): string {
  const [from, to] = [low === null ? '–' : inUnit(low, unit), high === null ? '∞' : inUnit(high, unit)]
  const [, number, itsUnit] = /^(\S+) (\S+)$/.exec(from) ?? []
  return number !== undefined && to.endsWith(` ${itsUnit}`) ? `${number} … ${to}` : `${from} … ${to}`
}

/** 0.99 → "P99", 0.999 → "P99.9" */
export function quantileName(quantile: number): string {
  return `P${Number((quantile * 100).toFixed(3))}`
}

export const METRIC_NAMES: Record<LatencyMetric, string> = {
  ttft: 'TTFT',
  e2el: 'E2EL',
  tpot: 'TPOT',
  itl: 'ITL',
}

/** "P99 E2EL ≤ 2 s" */
export function objectiveName({ metric, quantile, limit_ms }: Objective): string {
  return `${quantileName(quantile)} ${METRIC_NAMES[metric] ?? metric} ≤ ${latency(limit_ms)}`
}

/** The fewest requests from which a quantile can be certified at all: the bound of a sample without any miss. */
export function fewestFor(quantile: number, confidence = 0.95): number {
  return Math.ceil(Math.log(1 - confidence) / Math.log(quantile) - 1e-9)
}

/** Key of a quantile in a summary; undefined where it has none. */
export function quantileKey(quantile: number): Quantile | undefined {
  const key = `p${Number((quantile * 100).toFixed(3))}`
  return key === 'p50' || key === 'p90' || key === 'p95' || key === 'p99' ? key : undefined
}

/** The summary that an objective is judged on: from the intended start unless it says otherwise. */
export function summaryOf(level: LevelResult, { metric, start }: Objective): Summary | undefined {
  const named = start === 'actual' ? `${metric}_actual` : `${metric}_intended`
  return level.metrics[named] ?? level.metrics[metric]
}

/** All requests of the window that did not end well. */
export function failuresOf({ counts }: LevelResult): number {
  return counts.error + counts.timeout + counts.cut + counts.cancelled
}
