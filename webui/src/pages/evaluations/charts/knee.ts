/** A measured point of a sweep: offered rate and latency. */
export interface SweepPoint {
  rate: number
  latency: number
}

// As evaluation/report/reading.py has them: console and HTML report name the same knee.
const FEWEST = 3
/** Share of the square between first and last point; a line with less bend has no knee worth a name. */
const LEAST_BEND = 0.05
/** Latency that grew by less has not grown. */
const LEAST_GROWTH = 1.5

/**
 * Where latency starts to grow faster than the rate: the point farthest below the chord from the first to the last
 * point, both axes logarithmic and scaled to 0…1 (Satopää et al., "Kneedle", 2011, without its smoothing: a sweep has
 * few points, each of many requests). Null where the curve has no such bend.
 */
export function kneeOf(points: SweepPoint[]): SweepPoint | null {
  const sorted = points.filter(({ rate, latency }) => rate > 0 && latency > 0).sort((a, b) => a.rate - b.rate)
  const first = sorted[0]
  const last = sorted.at(-1)
  if (sorted.length < FEWEST || !first || !last) return null
  if (last.rate <= first.rate || last.latency <= first.latency * LEAST_GROWTH) return null
  const lowest = Math.min(...sorted.map((point) => point.latency))
  const highest = Math.max(...sorted.map((point) => point.latency))
  const share = (value: number, low: number, high: number) => Math.log(value / low) / Math.log(high / low)
  let knee: SweepPoint | null = null
  let most = LEAST_BEND
  for (const point of sorted) {
    const bend = share(point.rate, first.rate, last.rate) - share(point.latency, lowest, highest)
    if (bend > most) {
      most = bend
      knee = point
    }
  }
  return knee
}
