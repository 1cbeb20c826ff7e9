// The form of a new run: what people choose, and the RunSpec that comes of it (evaluation/schema.py).

import type { LatencyMetric, Objective, RunSpec } from '@/api/evaluationTypes'
import { fewestFor } from '../result/figures'

export type DatasetKind = 'synthetic' | 'shared_prefix' | 'sessions' | 'jsonl' | 'sharegpt' | 'trace'
export type LoadKind = 'search' | 'rate' | 'sweep' | 'concurrency'
export const DATASETS: DatasetKind[] = [
  'synthetic',
  'shared_prefix',
  'sessions',
  'jsonl',
  'sharegpt',
  'trace',
]
export const LOADS: LoadKind[] = ['search', 'rate', 'sweep', 'concurrency']
export const ARRIVALS = ['poisson', 'constant', 'gamma', 'mmpp']
export const RECORDED = 'trace'
export const TRACE_FORMATS = ['azure', 'burstgpt', 'mooncake']
export const QUANTILES = [0.5, 0.9, 0.95, 0.99]
export const METRICS: LatencyMetric[] = ['ttft', 'e2el', 'tpot', 'itl']
export const ADVISED_REQUESTS = 1_000

export interface ObjectiveField {
  quantile: number
  metric: LatencyMetric
  limit_ms: number
}

export interface RunForm {
  name: string
  scenario: string
  dataset: DatasetKind
  /** Id of one of the team's texts. */
  corpus: string
  format: string
  prompt: number
  output: number
  prefix: number
  /** Distinct prefixes. */
  groups: number
  /** Lengths scatter about their mean, as those of people do. */
  varied: boolean
  turns: number
  think_s: number
  load: LoadKind
  arrivals: string
  rate: number
  rates: string
  low: number
  high: number | null
  concurrency: number
  slo: ObjectiveField[]
  min_requests: number
  seed: number | null
  max_levels: number
  /** Percent. */
  tolerance: number
  processes: number
  timeout_s: number
}

export const NEW_RUN: RunForm = {
  name: '',
  scenario: 'custom',
  dataset: 'synthetic',
  corpus: '',
  format: 'azure',
  prompt: 512,
  output: 128,
  prefix: 1024,
  groups: 1,
  varied: true,
  turns: 4,
  think_s: 2,
  load: 'search',
  arrivals: 'poisson',
  rate: 1,
  rates: '0.5, 1, 2, 4',
  low: 0.5,
  high: null,
  concurrency: 8,
  slo: [{ quantile: 0.99, metric: 'e2el', limit_ms: 2_000 }],
  min_requests: ADVISED_REQUESTS,
  seed: null,
  max_levels: 12,
  tolerance: 5,
  processes: 1,
  timeout_s: 120,
}

export function toSpec(values: RunForm): RunSpec {
  return {
    name: values.name.trim(),
    endpoint: { timeout_s: values.timeout_s },
    dataset: datasetOf(values),
    load: loadOf(values),
    slo: values.slo.map(({ metric, quantile, limit_ms }): Objective => {
      const from = (metric === 'ttft' || metric === 'e2el') && values.load === 'concurrency'
      return { metric, quantile, limit_ms, ...(from ? { start: 'actual' as const } : {}) }
    }),
    min_requests: values.min_requests,
    scenario: values.scenario === 'custom' ? '' : values.scenario,
    processes: values.processes,
  }
}

function datasetOf(values: RunForm): RunSpec['dataset'] {
  const prompt = lengthOf(values.prompt, values.varied)
  const output = lengthOf(values.output, values.varied)
  const path = `corpus:${values.corpus}`
  switch (values.dataset) {
    case 'shared_prefix':
      return { kind: 'shared_prefix', prefix_tokens: values.prefix, groups: values.groups, prompt, output }
    case 'sessions':
      return { kind: 'sessions', turns: { mean: values.turns }, think_s: values.think_s, prompt, output }
    case 'jsonl':
      return { kind: 'jsonl', path, output }
    case 'sharegpt':
      return { kind: 'sharegpt', path }
    case 'trace':
      return { kind: 'trace', path, format: values.format }
    default:
      return { kind: 'synthetic', prompt, output }
  }
}

export function followsTrace({
  dataset,
  load,
  arrivals,
}: Pick<RunForm, 'dataset' | 'load' | 'arrivals'>): boolean {
  return dataset === 'trace' && load === 'rate' && arrivals === RECORDED
}

/** As the scenarios have it: half the mean is the spread. */
export const SPREAD = 0.5

function lengthOf(mean: number, varied: boolean) {
  return varied ? { distribution: 'lognormal', mean, stdev: SPREAD * mean } : { mean }
}

function loadOf(values: RunForm): RunSpec['load'] {
  // Recorded times belong to a trace, and have a rate of their own.
  if (followsTrace(values)) return { kind: 'rate', arrivals: RECORDED }
  const arrivals = values.arrivals === RECORDED ? NEW_RUN.arrivals : values.arrivals
  switch (values.load) {
    case 'rate':
      return { kind: 'rate', arrivals, rate: values.rate }
    case 'sweep':
      return { kind: 'sweep', arrivals, rates: ratesOf(values.rates) ?? [] }
    case 'concurrency':
      return { kind: 'concurrency', concurrency: values.concurrency }
    default:
      return {
        kind: 'search',
        arrivals,
        low: values.low,
        ...(values.high === null ? {} : { high: values.high }),
        tolerance: values.tolerance / 100,
        max_levels: values.max_levels,
      }
  }
}

/** "2, 0.5 1" → [0.5, 1, 2]; null where one is no number above 0. */
export function ratesOf(text: string): number[] | null {
  const parts = text.split(/[\s,，;]+/).filter((part) => part !== '')
  const rates = parts.map(Number)
  const good = rates.length > 0 && rates.every((rate) => Number.isFinite(rate) && rate > 0)
  return good ? rates.sort((a, b) => a - b) : null // a sweep goes upwards
}

export interface SampleWarning {
  quantile: number
  fewest: number
  /** Too few to certify anything, or only fewer than advised. */
  kind: 'tooFew' | 'thin'
}

/** What a sample of that size can't tell of these objectives; null where it is enough. */
export function sampleWarning(slo: ObjectiveField[], requests: number): SampleWarning | null {
  const [strictest] = slo
    .filter((one): one is ObjectiveField => Number.isFinite(one?.quantile))
    .sort((a, b) => b.quantile - a.quantile)
  if (!strictest) return null
  const fewest = fewestFor(strictest.quantile)
  if (requests < fewest) return { quantile: strictest.quantile, fewest, kind: 'tooFew' }
  // The same proportion as 299 to 1,000 of P99.
  const advised = Math.ceil((fewest * ADVISED_REQUESTS) / fewestFor(0.99))
  return requests < advised ? { quantile: strictest.quantile, fewest: advised, kind: 'thin' } : null
}

/** Seconds that the levels take at the least: the requests at the rates that will be tried. Null: not known before. */
export function leastSeconds(values: RunForm): number | null {
  const level = (rate: number) => Math.max(20, values.min_requests / rate)
  if (followsTrace(values)) return null
  if (values.load === 'rate') return values.rate > 0 ? level(values.rate) : null
  if (values.load === 'sweep') {
    return ratesOf(values.rates)?.reduce((total, rate) => total + level(rate), 0) ?? null
  }
  return null
}
