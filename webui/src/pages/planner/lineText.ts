import type { PlanLine } from '@/api/planner'
import { useSaid } from '@/i18n'
import { usePlannerText } from '@/i18n/planner'
import { figure, latency, METRIC_NAMES, quantileName } from '@/pages/evaluations/result/figures'
import { formatBytes } from '@/ui/units'
import { GPUS } from './plannerForm'

/** A line of a plan in the reader's language; as the planner said it where the code is unknown. */
export function useLineText(): (line: PlanLine) => string {
  const { lines } = usePlannerText()
  const said = useSaid()
  return (line) => lines[line.code]?.((name) => shown(name, line.values[name])) ?? said(line.text)
}

const BYTES = /^(needed|left|room|unshared|short_bytes)$/

function shown(name: string, value: PlanLine['values'][string] | undefined): string {
  if (value === null || value === undefined) return '–'
  if (name === 'gpu') return GPUS.find(([key]) => key === value)?.[1].split(' · ')[0] ?? String(value)
  if (typeof value !== 'number') return METRIC_NAMES[value as keyof typeof METRIC_NAMES] ?? String(value)
  if (BYTES.test(name)) return formatBytes(value)
  if (name.endsWith('_ms')) return latency(value)
  if (name === 'quantile') return quantileName(value)
  return figure(value)
}
