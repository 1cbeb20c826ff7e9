// Scales of the charts: from a quantity to a place, and the round numbers that stand beside an axis.

export interface Scale {
  /** Place of a value, in px. */
  at: (value: number) => number
  ticks: number[]
}

/** Logarithmic over all positive `values`; null where there is none. `from` and `to` are the ends in px. */
export function logScale(values: (number | null | undefined)[], from: number, to: number): Scale | null {
  const positive = values.filter((value): value is number => Number.isFinite(value) && (value ?? 0) > 0)
  if (positive.length === 0) return null
  let low = Math.min(...positive)
  let high = Math.max(...positive)
  if (high / low < MIN_SPAN) {
    const middle = Math.sqrt(low * high)
    low = middle / Math.sqrt(MIN_SPAN)
    high = middle * Math.sqrt(MIN_SPAN)
  }
  const at = (value: number) => from + (Math.log(value / low) / Math.log(high / low)) * (to - from)
  return { at, ticks: roundTicks(low, high) }
}

/** Linear from 0 to the greatest of `values`; null where none is a number. */
export function linearScale(values: (number | null | undefined)[], from: number, to: number): Scale | null {
  const known = values.filter((value): value is number => Number.isFinite(value))
  if (known.length === 0) return null
  const high = Math.max(...known, Number.MIN_VALUE)
  const step = roundStep(high / 4)
  const ticks = Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, index) => index * step)
  return { at: (value) => from + (value / high) * (to - from), ticks }
}

/** A range narrower than this is widened, so that one level is a point in the middle and no division by 0. */
const MIN_SPAN = 1.5
const MOST_TICKS = 7

/** Round numbers within low…high, at most seven: of 1-2-5, or of whole decades where that were too many. */
export function roundTicks(low: number, high: number): number[] {
  for (const digits of [FINE, [1, 2, 5], [1, 3], [1]]) {
    const found = powersOf(digits, low, high)
    if (found.length <= MOST_TICKS) return found
  }
  const decades = powersOf([1], low, high)
  const every = Math.ceil(decades.length / MOST_TICKS)
  return decades.filter((_, index) => index % every === 0)
}

const FINE = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8]

function powersOf(digits: number[], low: number, high: number): number[] {
  const found: number[] = []
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const digit of digits) {
      const value = Number((digit * 10 ** power).toPrecision(6))
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) found.push(value)
    }
  }
  return found
}

function roundStep(about: number): number {
  const power = 10 ** Math.floor(Math.log10(about))
  const digit = [1, 2, 2.5, 5, 10].find((one) => one * power >= about * (1 - 1e-9)) ?? 10
  return digit * power
}
