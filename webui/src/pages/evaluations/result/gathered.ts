import type { Finding, ResultDoc } from '@/api/evaluationTypes'
import { rateOf } from './sweep'

export interface Gathered {
  finding: Finding
  /** Rates at which it was found; empty: of the whole run. */
  rates: number[]
  /** Levels that it was found at; a rate may have been tried twice. */
  levels: number
}

/** Of all levels and the run, one for each code, the gravest first: twelve levels may say the same. */
export function gathered(result: ResultDoc): Gathered[] {
  const found = new Map<string, Gathered>()
  const gravity = { error: 0, warning: 1, info: 2 }
  const add = (finding: Finding, rate: number | null) => {
    const known = found.get(finding.code)
    const one = known ?? { finding, rates: [], levels: 0 }
    if (rate !== null) {
      one.levels += 1
      if (!one.rates.includes(rate)) one.rates.push(rate)
    }
    if (known && gravity[finding.severity] < gravity[known.finding.severity]) one.finding = finding
    found.set(finding.code, one)
  }
  const rateOfIndex = (index: number | null) => {
    const level = result.levels.find((one) => one.index === index)
    return level ? rateOf(level) : null
  }
  for (const finding of result.findings) add(finding, rateOfIndex(finding.level))
  for (const level of result.levels) for (const finding of level.findings) add(finding, rateOf(level))
  return [...found.values()].sort((a, b) => gravity[a.finding.severity] - gravity[b.finding.severity])
}

/** Codes by which the client or the cache, not the server, made the figures. */
export const INVALIDATING = new Set(['client_bound', 'cache_inflated'])

/**
 * Whether it belongs before all else of the page: it is of the whole run, or of all its levels, or it is what made the
 * run invalid. A search must overload the server to find its limit, and leaves out levels that the client spoiled:
 * those are told among the findings, with their rates.
 */
export function isGrave({ finding, levels }: Gathered, result: ResultDoc): boolean {
  if (finding.severity !== 'error') return false
  if (levels === 0 || levels >= result.levels.length) return true
  return result.verdict === 'invalid' && INVALIDATING.has(finding.code)
}
