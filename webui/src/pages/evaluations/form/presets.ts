import type { LatencyMetric } from '@/api/evaluationTypes'
import { NEW_RUN, type ObjectiveField, type RunForm } from './runForm'

/** Settings of each scenario, as evaluation/scenarios.py has them; the run takes over what the form then says. */
const PRESETS: Record<string, Partial<RunForm>> = {
  customer_chat: {
    dataset: 'shared_prefix',
    prefix: 600,
    prompt: 120,
    output: 150,
    slo: p99({ ttft: 1_000, e2el: 10_000 }),
  },
  long_generation: { prompt: 300, output: 1_200, slo: p99({ tpot: 60, e2el: 120_000 }) },
  rag: {
    dataset: 'shared_prefix',
    prefix: 300,
    prompt: 3_000,
    output: 200,
    slo: p99({ ttft: 3_000, e2el: 15_000 }),
  },
  code: {
    dataset: 'shared_prefix',
    prefix: 200,
    groups: 8,
    prompt: 1_500,
    output: 60,
    slo: p99({ ttft: 500, e2el: 2_500 }),
  },
  batch: { prompt: 800, output: 300, slo: p99({ e2el: 300_000 }) },
  custom: {},
}

function p99(limits: Partial<Record<LatencyMetric, number>>): ObjectiveField[] {
  return Object.entries(limits).map(([metric, limit_ms]) => ({
    quantile: 0.99,
    metric: metric as LatencyMetric,
    limit_ms,
  }))
}

export const SCENARIOS = Object.keys(PRESETS)

/** All that a scenario sets, so that a second choice leaves nothing of the first. */
export function presetOf(name: string): Partial<RunForm> {
  const { dataset, prefix, prompt, output, load, concurrency, slo } = NEW_RUN
  return name === 'custom'
    ? {}
    : { dataset, prefix, prompt, output, load, concurrency, slo, ...PRESETS[name] }
}
