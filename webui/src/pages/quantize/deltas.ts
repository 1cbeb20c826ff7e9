// Differences between a base and what was made of it, as people read them.

import type { Figures, Quantization } from '@/api/quantization'
import type { Change } from '@/api/types'
import type { QuantizeText } from '@/i18n/quantize'
import { figure, share } from '@/pages/evaluations/result/figures'
import { formatBytes } from '@/ui/units'

/** "−73 %", "+12 %", "+0.3 %", "±0 %"; from twice on as a factor: "2.4 ×". Empty where nothing can be said. */
export function changeText(before: number | null, after: number | null): string {
  if (before === null || after === null || before <= 0) return ''
  const ratio = after / before
  if (ratio >= 2) return `${figure(ratio)} ×`
  const change = (ratio - 1) * 100
  const percent = Number(change.toFixed(Math.abs(change) < 10 ? 1 : 0))
  return percent === 0 ? '±0 %' : `${percent > 0 ? '+' : '−'}${Math.abs(percent)} %`
}

export type Measured = Exclude<keyof Figures, 'dtype' | 'measured_on'>

/**
 * The base's figure that a version's is held against. Each job measures the base anew, and a machine that is busy with
 * other work slows it down, never up: of speeds, the best that was measured there. Sizes are those of the same job.
 */
export function beforeOf(
  one: Quantization,
  rows: Quantization[],
  name: Measured,
  better: 'lower' | 'higher',
): number | null {
  const own = one.base_figures?.[name] ?? null
  if (own === null || better === 'lower') return own
  const there = rows.filter(
    ({ job, base_figures: base }) =>
      job.node_name === one.job.node_name && base?.measured_on === one.base_figures?.measured_on,
  )
  return Math.max(...there.map(({ base_figures: base }) => base?.[name] ?? own))
}

/** What was measured several times: "13.5", or "10.1 – 13.5" where the jobs found different figures. */
export function rangeText(values: (number | null | undefined)[], told: (value: number) => string): string {
  const known = values.filter((value) => value !== null && value !== undefined)
  if (known.length === 0) return '–'
  const ends = [told(Math.min(...known)), told(Math.max(...known))]
  return [...new Set(ends)].join(' – ')
}

/** Whether a change is for the better. Changes within `noise` of the base are neither. */
export function toneOf(
  before: number | null,
  after: number | null,
  better: 'lower' | 'higher',
  noise = 0.005,
): 'tone-ok' | 'tone-error' | undefined {
  if (before === null || after === null || before === 0) return undefined
  const change = after / before - 1
  if (Math.abs(change) <= noise) return undefined
  return change < 0 === (better === 'lower') ? 'tone-ok' : 'tone-error'
}

/** What a version costs or gains against the one that it was made of, as one line of a lineage. */
export function changeLine(
  name: string,
  { before, after, unit }: Change,
  text: QuantizeText,
  said: (words: string) => string,
): string {
  const title = text.metrics[name] ?? name
  if (typeof before === 'string' || typeof after === 'string') {
    const verdicts: Record<string, string> = text.verdicts
    return `${title}: ${verdicts[String(after)] ?? said(String(after))}`
  }
  const told = SHARES.has(name) ? share : (value: number) => quantity(value, name === 'fallbacks' ? '' : unit)
  if (ABSOLUTE.has(name)) return `${title} ${told(after)}`
  const change = changeText(before, after)
  return `${title} ${told(before)} → ${told(after)}${change && ` (${change})`}`
}

/** What says more alone than beside the base's, which is always the same: 1 or 0. */
const ABSOLUTE = new Set(['same top', 'KL', 'fallbacks'])
const SHARES = new Set(['same top'])

/** A gate that was not kept is to be seen in the lineage, too. */
export function changeTone(name: string, { after }: Change): string | undefined {
  if (name !== 'verdict') return undefined
  return after === 'passed' ? 'tone-ok' : 'tone-warning'
}

function quantity(value: number, unit: string): string {
  return unit === 'bytes' ? formatBytes(value) : [figure(value), unit].filter(Boolean).join(' ')
}
