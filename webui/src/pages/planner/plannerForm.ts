// What people say of their traffic, as the profile that the planner takes (evaluation/profile.py).

import type { Objective } from '@/api/evaluationTypes'
import type { BusinessProfile, PlanRequest } from '@/api/planner'
import { type ObjectiveField, SPREAD } from '@/pages/evaluations/form/runForm'

export interface PlannerForm {
  version: string
  source: 'hand' | 'usage'
  scenario: string
  deployment: string
  rate: number
  peak_factor: number
  prefix: number
  user: number
  output: number
  varied: boolean
  slo: ObjectiveField[]
  gpus: string[]
  max_gpus: number
  schemes: string[]
  prices: { gpu: string; price: number }[]
}

/** Keys and names of evaluation/planner/hardware.toml. */
export const GPUS: [string, string][] = [
  ['a10', 'A10 · 24 GB'],
  ['l20', 'L20 · 48 GB'],
  ['l40s', 'L40S · 48 GB'],
  ['rtx4090', 'RTX 4090 · 24 GB'],
  ['a100', 'A100 SXM · 80 GB'],
  ['a100_pcie', 'A100 PCIe · 80 GB'],
  ['h20', 'H20 · 96 GB'],
  ['h100', 'H100 SXM · 80 GB'],
  ['h100_pcie', 'H100 PCIe · 80 GB'],
  ['h200', 'H200 SXM · 141 GB'],
  ['b200', 'B200 SXM · 180 GB'],
  ['cpu2', '2 CPU cores (AVX2)'],
]
export const SCHEMES = ['bfloat16', 'float32', 'fp8', 'w8a8', 'w4a16', 'w4a16-asym', 'int8']

export const NEW_PLAN: Omit<PlannerForm, 'version'> = {
  source: 'hand',
  scenario: 'custom',
  deployment: '',
  rate: 1,
  peak_factor: 2,
  prefix: 0,
  user: 512,
  output: 128,
  varied: true,
  slo: [
    { quantile: 0.99, metric: 'ttft', limit_ms: 1_000 },
    { quantile: 0.99, metric: 'e2el', limit_ms: 10_000 },
  ],
  gpus: [],
  max_gpus: 64,
  schemes: [],
  prices: [],
}

export function profileByHand(values: PlannerForm, name: string): BusinessProfile {
  return {
    name,
    arrivals: { rate: values.rate, peak_factor: values.peak_factor },
    lengths: { pairs: values.varied ? spread(values.user, values.output) : [[values.user, values.output]] },
    groups: values.prefix > 0 ? [{ prefix_tokens: values.prefix, share: 1 }] : [],
    slo: values.slo,
  }
}

export function toRequest(values: PlannerForm, profile: BusinessProfile): PlanRequest {
  const prices = Object.fromEntries((values.prices ?? []).map(({ gpu, price }) => [gpu, price]))
  return {
    version: values.version,
    profile: { ...profile, slo: values.slo.map((one): Objective => ({ ...one })) },
    constraints: {
      gpus: values.gpus,
      max_gpus: values.max_gpus,
      schemes: values.schemes,
      prices,
    },
  }
}

/** Standard normal quantiles in the middles of eight equal parts. */
const EIGHTHS = [-1.5341, -0.8871, -0.4888, -0.1573, 0.1573, 0.4888, 0.8871, 1.5341]

/** Pairs of lengths of two independent lognormals, as the scenarios have them, whose means are exactly those given. */
export function spread(user: number, output: number): [number, number][] {
  const [users, outputs] = [lengths(user), lengths(output)]
  return users.flatMap((one) => outputs.map((other): [number, number] => [one, other]))
}

function lengths(mean: number): number[] {
  const sigma = Math.sqrt(Math.log(1 + SPREAD ** 2))
  const raw = EIGHTHS.map((z) => Math.exp(sigma * z))
  const scale = mean / (raw.reduce((sum, one) => sum + one, 0) / raw.length)
  return raw.map((one) => Math.max(1, Math.round(one * scale)))
}

interface Length {
  distribution: 'histogram'
  values: number[]
  weights: number[]
}

/** The load test that puts a plan to the test: the profile's lengths at its peak. */
export function confirmingSpec(profile: BusinessProfile, peak: number, slo: Objective[]) {
  const pairs = pairsOf(profile)
  const prompt = histogram(pairs.map(([user, , weight]) => [user, weight]))
  const output = histogram(pairs.map(([, out, weight]) => [out, weight]))
  const groups = (profile.groups ?? []).filter((group) => group.prefix_tokens > 0)
  const total = groups.reduce((sum, one) => sum + one.share, 0)
  const prefix = groups.reduce((sum, one) => sum + one.prefix_tokens * (one.share / total), 0)
  return {
    dataset:
      groups.length > 0
        ? { kind: 'shared_prefix', prefix_tokens: Math.round(prefix), groups: groups.length, prompt, output }
        : { kind: 'synthetic', prompt, output },
    // Ends that the plan's own levels need: a rate that is held, and enough requests for the quantile.
    load: { kind: 'rate', rate: peak, arrivals: 'poisson' },
    slo,
    endpoint: { extra_body: { ignore_eos: true } },
  }
}

/** (user, output, weight) of a profile that holds pairs or a histogram; a cell counts by its middle. */
function pairsOf({ lengths }: BusinessProfile): [number, number, number][] {
  if (lengths.pairs?.length) return lengths.pairs.map(([user, output]) => [user, output, 1])
  const middle = (edges: number[], at: number) =>
    Math.max(1, Math.round(((edges[at] ?? 1) + (edges[at + 1] ?? edges[at] ?? 1)) / 2))
  return (lengths.counts ?? []).flatMap((row, i) =>
    row.map((weight, j): [number, number, number] => [
      middle(lengths.user_edges ?? [], i),
      middle(lengths.output_edges ?? [], j),
      weight,
    ]),
  )
}

const MOST_VALUES = 64

/** Weights by value; where there are too many values, by their middles in equal shares of the requests. */
function histogram(weighted: [number, number][]): Length {
  const sorted = weighted.filter(([, weight]) => weight > 0).sort((a, b) => a[0] - b[0])
  const distinct = new Map<number, number>()
  for (const [value, weight] of sorted) distinct.set(value, (distinct.get(value) ?? 0) + weight)
  const entries = [...distinct]
  const size = Math.ceil(entries.length / MOST_VALUES)
  const values: number[] = []
  const weights: number[] = []
  for (let at = 0; at < entries.length; at += size) {
    const part = entries.slice(at, at + size)
    const weight = part.reduce((sum, [, one]) => sum + one, 0)
    values.push(Math.max(1, Math.round(part.reduce((sum, [value, one]) => sum + value * one, 0) / weight)))
    weights.push(weight)
  }
  return { distribution: 'histogram', values, weights }
}
