// Quantization: a job for each scheme makes a smaller version of a base, proves it, and joins one table
// (platform/tursiops/quantization, plugins/quantization).

import { useMutation, useQuery } from '@tanstack/react-query'
import { call } from './client'
import { usePace } from './live'
import { queryClient } from './queryClient'
import type { Job, JsonSchema, Page } from './types'

/** What a device does with a scheme: computes in it, runs it without the gain in speed, or cannot. */
export type SupportLevel = 'supported' | 'slow' | 'unsupported'
export interface Support {
  /** Key of the device, e.g. "h200" or "cpu". The processor comes first, then GPUs that nodes have, then others. */
  device: string
  device_name: string
  level: SupportLevel
  reason: string
}

/** Limits that a version must keep to pass, by the name of the measured figure. */
export type Thresholds = Record<string, number>

export interface Scheme {
  name: string
  label: string
  explanation: string
  best_for: string
  /** How each is kept, in words. */
  weights: string
  activations: string
  kv: string
  embedding: string
  needs_data: boolean
  bits: number
  options_schema: JsonSchema
  /** For the size of the model that was asked about. */
  gate: Thresholds
  support: Support[]
}

/** Something that stands in the way of a plan, or slows it, with what to do. */
export interface PlanProblem {
  code: string
  severity: 'info' | 'warning' | 'error'
  field: string
  message: string
  proposal: string
}

export interface SchemePlan {
  scheme: string
  /** Bytes of the files, and of the weights in memory on each device. */
  size_bytes: number
  base_bytes: number
  memory_bytes: number
  bits: number
  /** Of the job: peak memory in bytes, disk in bytes, seconds; null where nothing is known. */
  job_memory_bytes: number | null
  disk_bytes: number | null
  seconds: number | null
  support: Support
  problems: PlanProblem[]
}

/** Where the rows come from, and how many of what length. */
export interface Calibration {
  source: 'builtin' | 'corpus'
  corpus?: string
  samples: number
  tokens: number
}
export interface CalibrationCount {
  samples: number
  tokens: number
  problems: PlanProblem[]
}

export interface SchemeChoice {
  scheme: string
  options?: Record<string, unknown>
  gate?: Thresholds
  /** Layers that stay in 16 bits: names, or patterns with *. */
  keep?: string[]
}
export interface QuantizeInput {
  schemes: SchemeChoice[]
  device: string
  tp: number
  calibration: Calibration
}
export interface Plan {
  plans: SchemePlan[]
  calibration: CalibrationCount | null
}

/** A product of a layer that has been done: "layers.3.qkv" is what q, k and v compute of one input. */
export interface DoneLayer {
  /** Of the layer, and the product's name, which `keep` takes. */
  index: number
  name: string
  /** What it was kept in, and how: "gptq", "rtn", "rtn_fallback", "kept". */
  scheme: string
  method: string
  /** Squared error of its outputs as a share of their squares, on the calibration tokens. */
  loss: number | null
  rtn_loss: number | null
  /** Of the weights, in decibels. */
  sqnr_db: number | null
  /** Relative error of its outputs, given the original's input; and of the stream after it, given its own. */
  local_error: number | null
  accumulated_error: number | null
  /** "" or what was done in place of the scheme's method: never silent. */
  fallback: string
}

/** How far a job is; null before its child has said something. */
export interface LayerProgress {
  phase: 'prepare' | 'calibrate' | 'quantize' | 'write' | 'evaluate'
  /** What is being done, in words. */
  layer: string
  layers_done: number
  layers: number
  loss: number | null
  fallbacks: number
  elapsed_s: number
  eta_s: number | null
  /** Layers that an earlier attempt had finished and this one took over. */
  resumed_at: number
}

/** Measured of a version, the base's too; null: not measured. */
export interface Figures {
  size_bytes: number | null
  memory_bytes: number | null
  decode_tokens_per_s: number | null
  prefill_tokens_per_s: number | null
  perplexity: number | null
  /** To the base's: 1 is lossless. */
  perplexity_ratio: number | null
  same_top: number | null
  kl: number | null
}

export interface GateRule {
  metric: string
  value: number | null
  limit: number
  /** Which side of the limit is good. */
  better: 'lower' | 'higher'
  passed: boolean
}

export interface Sensitivity {
  layer: string
  /** KL divergence that this layer alone adds. */
  kl: number
  bytes: number
}

/** One scheme of one base: its job, and what came of it. */
export interface Quantization {
  id: string
  base: string
  scheme: string
  scheme_label: string
  /** As it was asked, so that it can be asked again: the recipe without its scheme, and what `keep` holds of it. */
  options: Record<string, unknown>
  keep: string[]
  gate: Thresholds
  device: string
  tp: number
  calibration: Calibration
  job: Job
  version: string | null
  version_label: string
  progress: LayerProgress | null
  figures: Figures | null
  /** failed: the work ran and a limit was not kept; error: no verdict could be reached. */
  verdict: 'passed' | 'failed' | 'error' | null
  rules: GateRule[]
  /** Products that were not made as asked. */
  fallbacks: number
  reason: string
}
export interface QuantizationDetail extends Quantization {
  layers: DoneLayer[]
  sensitivity: Sensitivity[]
}
export interface QuantizationTable {
  base: { version: string; label: string; figures: Figures | null }
  rows: Quantization[]
}

const LIVE_MS = 2_000
const isEnded = ({ state }: Job) => !['queued', 'running', 'cancelling'].includes(state)

function refresh(): Promise<void> {
  queryClient.invalidateQueries({ queryKey: ['jobs'] })
  queryClient.invalidateQueries({ queryKey: ['models'] })
  return queryClient.invalidateQueries({ queryKey: ['quantizations'] })
}

/** With the limits for a model of `version`'s size. */
export function useSchemes(version: string | undefined) {
  return useQuery({
    queryKey: ['quantizations', 'schemes', version],
    queryFn: ({ signal }) => call<Scheme[]>('quantization/schemes', { query: { version }, signal }),
    placeholderData: (previous) => previous,
  })
}

/** What would come of it, before anything starts; null asks nothing. */
export function useQuantizePlan(version: string, input: QuantizeInput | null) {
  return useQuery({
    queryKey: ['quantizations', 'plan', version, input],
    queryFn: ({ signal }) =>
      call<Plan>(`versions/${version}/quantize/plan`, { method: 'POST', body: input, signal }),
    enabled: input !== null,
    placeholderData: (previous) => previous,
    retry: false,
  })
}

/** A job for each scheme. */
export function useQuantize(version: string) {
  return useMutation({
    mutationFn: (body: QuantizeInput) =>
      call<Quantization[]>(`versions/${version}/quantize`, { method: 'POST', body }),
    onSuccess: refresh,
  })
}

/** The same once more, with these layers in 16 bits beside those that were kept before. */
export function useRunAgain(one: Quantization) {
  const { keep: _kept, ...options } = one.options
  const { source, corpus, samples, tokens } = one.calibration
  return useMutation({
    mutationFn: (layers: string[]) =>
      call<Quantization[]>(`versions/${one.base}/quantize`, {
        method: 'POST',
        body: {
          schemes: [{ scheme: one.scheme, options, gate: one.gate, keep: [...one.keep, ...layers] }],
          device: one.device,
          tp: one.tp,
          calibration: { source, ...(corpus ? { corpus } : {}), samples, tokens },
        } satisfies QuantizeInput,
      }),
    onSuccess: refresh,
  })
}

/** The base and all that was made of it; asked again while a job runs. */
export function useQuantizations(version: string) {
  const pace = usePace(LIVE_MS)
  return useQuery({
    queryKey: ['quantizations', 'table', version],
    queryFn: ({ signal }) => call<QuantizationTable>(`versions/${version}/quantizations`, { signal }),
    enabled: version !== '',
    refetchInterval: ({ state }) => (state.data?.rows.every(({ job }) => isEnded(job)) ? false : pace),
  })
}

/** The one that a job makes; none for a job of another kind. */
export function useQuantizationOf(job: string) {
  return useQuery({
    queryKey: ['quantizations', 'of', job],
    queryFn: async ({ signal }) =>
      (await call<Page<Quantization>>('quantizations', { query: { job }, signal })).results[0] ?? null,
  })
}

export function useQuantization(id: string) {
  const pace = usePace(LIVE_MS)
  return useQuery({
    queryKey: ['quantizations', 'one', id],
    queryFn: ({ signal }) => call<QuantizationDetail>(`quantizations/${id}`, { signal }),
    enabled: id !== '',
    refetchInterval: ({ state }) => (state.data && isEnded(state.data.job) ? false : pace),
  })
}
