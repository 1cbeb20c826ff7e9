// Differences of figures that were each measured with an interval.
//
// The interval of a difference is recovered from the two (Zou and Donner, "Construction of confidence limits about
// effect measures", Statistics in Medicine 2008, called MOVER): it needs no symmetry, which quantiles do not have. p
// comes from widening it until it touches zero; Holm (1979) corrects over all figures compared.

import type { RunFigure } from '@/api/evaluations'

/** Smaller changes make no difference in practice, however certain they are (platform: figures.PRACTICAL). */
export const PRACTICAL = 0.03
const ALPHA = 0.05
/** Half width of a 95 % interval in standard errors. */
const Z_95 = 1.959964

export type Conclusion = 'better' | 'worse' | 'same' | 'unclear'

export interface Difference {
  name: string
  unit: string
  reference: number
  value: number
  /** Relative to the reference; null where that is 0. */
  change: number | null
  /** Relative interval of the change; null where one of both has none. */
  low: number | null
  high: number | null
  p: number | null
  /** Holm-corrected. */
  corrected: number | null
  conclusion: Conclusion
}

/** Every figure that both have, those first that changed most; `p` corrected over all of them. */
export function differences(
  reference: Record<string, RunFigure>,
  other: Record<string, RunFigure>,
): Difference[] {
  const raw = Object.keys(reference).flatMap((name) => {
    const [first, second] = [reference[name], other[name]]
    return first && second ? [{ ...differenceOf(name, first, second), better: first.better }] : []
  })
  const corrected = holm(raw.map((one) => one.p))
  return raw
    .map(({ better, ...one }, at) => {
      const p = corrected[at] ?? null
      return { ...one, corrected: p, conclusion: concluded({ ...one, corrected: p }, better) }
    })
    .sort((a, b) => gravity(a) - gravity(b) || Math.abs(b.change ?? 0) - Math.abs(a.change ?? 0))
}

function gravity({ conclusion }: Difference): number {
  return ['worse', 'better', 'unclear', 'same'].indexOf(conclusion)
}

type Raw = Omit<Difference, 'corrected' | 'conclusion'>

function differenceOf(name: string, first: RunFigure, second: RunFigure): Raw {
  const change = first.value === 0 ? null : (second.value - first.value) / Math.abs(first.value)
  const told = { name, unit: first.unit, reference: first.value, value: second.value, change }
  if (first.low === null || first.high === null || second.low === null || second.high === null) {
    return { ...told, low: null, high: null, p: null }
  }
  const by = second.value - first.value
  const below = Math.hypot(second.value - second.low, first.high - first.value)
  const above = Math.hypot(second.high - second.value, first.value - first.low)
  const towardsZero = by >= 0 ? below : above
  const scale = Math.abs(first.value) || 1
  return {
    ...told,
    low: (by - below) / scale,
    high: (by + above) / scale,
    p: towardsZero === 0 ? (by === 0 ? 1 : 0) : twoSided((Z_95 * Math.abs(by)) / towardsZero),
  }
}

function concluded(one: Raw & { corrected: number | null }, better: RunFigure['better']): Conclusion {
  const { change, low, high, corrected } = one
  if (change === null || corrected === null || low === null || high === null) return 'unclear'
  const inside = (value: number) => Math.abs(value) < PRACTICAL
  if (corrected < ALPHA) {
    if (inside(change)) return 'same'
    return change < 0 === (better === 'lower') ? 'better' : 'worse'
  }
  // Not significant is no evidence of equality, unless the whole interval is too small to matter.
  return inside(low) && inside(high) ? 'same' : 'unclear'
}

/** Step-down correction; null stays null and counts for nothing. */
export function holm(ps: (number | null)[]): (number | null)[] {
  const order = ps.flatMap((p, at) => (p === null ? [] : [{ p, at }])).sort((a, b) => a.p - b.p)
  const found: (number | null)[] = ps.map(() => null)
  let least = 0
  for (const [rank, { p, at }] of order.entries()) {
    least = Math.min(1, Math.max(least, p * (order.length - rank)))
    found[at] = least
  }
  return found
}

/** Two-sided tail of the normal distribution (Abramowitz and Stegun 7.1.26: |error| < 1.5e-7). */
export function twoSided(z: number): number {
  const x = Math.abs(z) / Math.SQRT2
  const t = 1 / (1 + 0.3275911 * x)
  const series =
    t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
  return Math.min(1, series * Math.exp(-x * x))
}
