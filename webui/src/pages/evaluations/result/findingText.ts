import type { Finding } from '@/api/evaluationTypes'
import { figure, latency, quantileName, share } from './figures'

export interface FindingText {
  title: string
  cause: string
  remedy: string
}

/** The console's words for a code: sentences with the evidence's values in them. */
export interface FindingWords {
  title: string
  cause: (evidence: Values) => string
  remedy: string
}

/** Evidence as text: a value that is missing is a dash. */
export type Values = (name: string) => string

/** In the reader's language where the code is known; else as the run said it, translated where that can be. */
export function textOf(
  finding: Finding,
  words: Record<string, FindingWords>,
  said: (text: string) => string,
): FindingText {
  const known = words[finding.code]
  if (!known) return { title: titled(finding.code), cause: said(finding.cause), remedy: said(finding.remedy) }
  const values: Values = (name) => shown(name, finding.evidence[name])
  return { title: known.title, cause: known.cause(values), remedy: known.remedy }
}

/** Rows of the evidence, lists and numbers as people read them. */
export function evidenceRows(evidence: Record<string, unknown>, names: Record<string, string>) {
  return Object.entries(evidence)
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => ({ name: names[name] ?? titled(bare(name)), value: shown(name, value) }))
}

/** The unit is in the name, as in evaluation/schema.py. */
function shown(name: string, value: unknown): string {
  if (value === null || value === undefined) return '–'
  if (Array.isArray(value)) return value.map((one) => shown(name, one)).join(', ')
  if (typeof value === 'boolean') return value ? '✓' : '✗'
  if (typeof value === 'object') {
    return Object.entries(value)
      .map(([key, one]) => `${key} ${shown('', one)}`)
      .join(', ')
  }
  if (typeof value !== 'number') return String(value)
  if (name === 'quantile') return quantileName(value)
  if (name.endsWith('_per_s')) return figure(value)
  if (name.endsWith('_ms')) return latency(value)
  if (name.endsWith('_s')) return `${figure(value)} s`
  if (SHARES.test(name)) return share(value)
  return figure(value)
}

const SHARES = /(^|_)(share|share_peak|hit_rate|expected|measured|attainment|tolerance|score|chance)$/
const UNIT = /_(ms|s)$/

function bare(name: string): string {
  return name.replace(UNIT, '')
}

function titled(code: string): string {
  const words = code.replaceAll('_', ' ')
  return words.charAt(0).toUpperCase() + words.slice(1)
}
