// A logarithmic scale of whole decades for the errors of layers.

export interface Decades {
  /** Powers of ten: 10^low is the foot of the chart, 10^high its top. */
  low: number
  high: number
}

/** The decades that hold all positive values; null where there is none: equals differ in nothing. */
export function decades(values: (number | null)[]): Decades | null {
  const positive = values.filter((value): value is number => value !== null && value > 0)
  if (positive.length === 0) return null
  const low = Math.floor(Math.log10(Math.min(...positive)))
  return { low, high: Math.max(low + 1, Math.ceil(Math.log10(Math.max(...positive)))) + 0 } // no −0
}

/** From the top, 0…1. */
export function heightOf(value: number, { low, high }: Decades): number {
  return (high - Math.log10(value)) / (high - low)
}
