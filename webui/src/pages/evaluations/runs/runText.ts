import type { Run, RunFigure } from '@/api/evaluations'
import type { EvaluationText } from '@/i18n/evaluations'
import { figure, inUnit, share } from '../result/figures'

/** The one figure that a run is known by: its capacity, else what it measured first of these. */
const FIRST = ['capacity', 'goodput', 'done_rate', 'attainment']

export function answerOfFigures(figures: Record<string, RunFigure>, text: EvaluationText): string {
  const name = FIRST.find((one) => figures[one]) ?? Object.keys(figures)[0]
  const found = name === undefined ? undefined : figures[name]
  if (!name || !found) return '–'
  if (name === 'capacity') {
    if (found.high === null) return text.answer.shortOpen(figure(found.low ?? found.value))
    return text.answer.short(figure(found.low ?? found.value), figure(found.high))
  }
  return `${figureName(name, text)} ${figureValue(found.value, found.unit)}`
}

/** "ttft_intended.p99" → "TTFT P99"; "2.5/s goodput" keeps its rate in front. */
export function figureName(name: string, text: EvaluationText): string {
  const rate = /^([\d.e+-]+\/s) (.*)$/.exec(name)
  if (rate) return `${rate[1]} ${figureName(rate[2] ?? '', text)}`
  const [metric = name, quantile] = name.split('.')
  const shown = text.percentiles.names[metric]?.[0] ?? text.figureNames[metric]
  if (!shown) return name.replaceAll('_', ' ')
  return quantile ? `${shown} ${/^p\d/.test(quantile) ? quantile.toUpperCase() : quantile}` : shown
}

export function figureValue(value: number | null, unit: string): string {
  if (unit === 'share') return share(value)
  if (unit === 'req/s') return `${figure(value)} req/s`
  return inUnit(value, unit)
}

/** Files that a run left, by what people want of them; those of a run with two parts name the part. */
export const DOWNLOADS = [
  { key: 'html', ends: 'report.html' },
  { key: 'json', ends: 'result.json' },
  { key: 'csv', ends: 'summary.csv' },
  { key: 'jsonl', ends: 'requests.jsonl' },
  { key: 'junit', ends: 'gates.junit.xml' },
]

export function tookSeconds(run: Run): number | null {
  if (run.started_at === null) return null
  const end = run.finished_at === null ? Date.now() : Date.parse(run.finished_at)
  return Math.max(0, end - Date.parse(run.started_at)) / 1_000
}
