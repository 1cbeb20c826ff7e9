// Numbers with their units. Sizes are in powers of 1024 and say so, as the platform's own sentences do
// (`size_text` in engines/api.py).

const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB']

/** 102629376 → "97.9 MiB" */
export function formatBytes(bytes: number): string {
  let value = Math.max(0, bytes)
  let unit = 0
  while (value >= 1024 && unit < SIZES.length - 1) {
    value /= 1024
    unit += 1
  }
  const digits = unit === 0 || value >= 100 ? 0 : unit >= 3 ? 2 : 1
  return `${value.toFixed(digits)} ${SIZES[unit]}`
}

export function formatCount(value: number, locale: string): string {
  return new Intl.NumberFormat(locale).format(value)
}

/** 134515008 → "135M" */
export function formatParameters(value: number): string {
  if (value >= 1e9) return `${(value / 1e9).toFixed(value >= 1e10 ? 0 : 1)}B`
  if (value >= 1e6) return `${Math.round(value / 1e6)}M`
  return String(value)
}

/** Milliseconds for people: "84 ms", "1.24 s", "2 min 5 s" */
export function formatMs(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  return formatSeconds(ms / 1_000)
}

export function formatSeconds(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`
  if (seconds < 60) return `${Math.round(seconds)} s`
  const whole = Math.round(seconds)
  if (whole < 3_600) return pair(whole, 60, 'min', 1, 's')
  if (whole < 86_400) return pair(whole, 3_600, 'h', 60, 'min')
  return pair(whole, 86_400, 'd', 3_600, 'h')
}

function pair(seconds: number, large: number, largeUnit: string, small: number, smallUnit: string): string {
  const rest = Math.floor((seconds % large) / small)
  return `${Math.floor(seconds / large)} ${largeUnit}${rest > 0 ? ` ${rest} ${smallUnit}` : ''}`
}

export function formatRate(perSecond: number): string {
  return perSecond >= 100 ? String(Math.round(perSecond)) : perSecond.toFixed(1)
}

/** Whole percent of a share 0…1, kept within 0…100. */
export function percent(share: number): number {
  return Math.round(Math.min(1, Math.max(0, share)) * 100)
}

/** The largest unit in which `iso` lies at least one unit away from `now`, as Intl.RelativeTimeFormat takes it. */
export function relativeTime(iso: string, now: number): [number, Intl.RelativeTimeFormatUnit] {
  const seconds = Math.round((new Date(iso).getTime() - now) / 1_000)
  const steps: [number, Intl.RelativeTimeFormatUnit][] = [
    [86_400, 'day'],
    [3_600, 'hour'],
    [60, 'minute'],
  ]
  for (const [length, unit] of steps) {
    if (Math.abs(seconds) >= length) return [Math.trunc(seconds / length), unit]
  }
  return [seconds, 'second']
}

export function sum(counts: Record<string, number>): number {
  return Object.values(counts).reduce((total, count) => total + count, 0)
}
