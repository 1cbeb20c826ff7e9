// Quantization: a job for each scheme makes a smaller version of a base, proves it, and joins one table
// (platform/tursiops/quantization, plugins/quantization).

import { useMutation, useQuery } from '@tanstack/react-query'
import { call } from './client'
import { usePace } from './live'
import { queryClient } from './queryClient'
import type { components } from './schema'
import type { Job, JsonSchema, Page } from './types'

type Schema = components['schemas']

export type SupportLevel = Schema['LevelEnum']
/** The processor comes first, then GPUs that nodes have, then others. */
export type Support = Schema['Support']
export type Scheme = Omit<Schema['Scheme'], 'options_schema'> & { options_schema: JsonSchema }
/** Something that stands in the way of a plan, or slows it, with what to do. */
export type PlanProblem = Schema['QuantizeProblem']
export type SchemePlan = Schema['SchemePlan']
export type Plan = Schema['QuantizePlan']
/** Of a product of a layer: "layers.3.qkv" is what q, k and v compute of one input. `keep` takes its name. */
export type DoneLayer = Schema['DoneLayer']
export type LayerProgress = Schema['LayerProgress']
export type Figures = Schema['QuantizationFigures']
export type GateRule = Schema['Rule']
export type Sensitivity = Schema['Sensitivity']
export type KeptTraffic = Schema['KeptTraffic']

/** Where the rows come from, and how many of what length. */
export interface Calibration {
  source: Schema['SourceEnum']
  corpus?: string
  samples: number
  tokens: number
}
export interface SchemeChoice {
  scheme: string
  options?: Record<string, unknown>
  /** Limits by the name of the measured figure. */
  gate?: Record<string, number>
  /** Layers that stay in 16 bits: names, or patterns with *. */
  keep?: string[]
}
export interface QuantizeInput {
  schemes: SchemeChoice[]
  device: string
  tp: number
  calibration: Calibration
}

/** One scheme of one base: how it was asked, its job, and what came of it. */
interface Asked {
  calibration: Calibration
  /** What a deployment of it is to ask for. */
  deploy?: { options: Record<string, unknown> }
}
export type Quantization = Omit<Schema['Quantization'], keyof Asked> & Asked
export type QuantizationDetail = Omit<Schema['QuantizationDetail'], keyof Asked | 'comparison'> &
  Asked & {
    /** Newest job that compared it with its base, layer by layer. */
    comparison?: string | null
  }
export type QuantizationTable = Omit<Schema['QuantizationTable'], 'rows'> & { rows: Quantization[] }

const LIVE_MS = 2_000
const isEnded = ({ state }: Job) => !['queued', 'running', 'cancelling'].includes(state)

export function refresh(): Promise<void> {
  queryClient.invalidateQueries({ queryKey: ['jobs'] })
  queryClient.invalidateQueries({ queryKey: ['models'] })
  return queryClient.invalidateQueries({ queryKey: ['quantizations'] })
}

/** Prompts that applications agreed to keep. */
export function useKeptTraffic(asked: boolean) {
  return useQuery({
    queryKey: ['quantizations', 'traffic'],
    queryFn: ({ signal }) => call<KeptTraffic>('quantization/traffic', { signal }),
    enabled: asked,
  })
}

export function useEraseTraffic() {
  return useMutation({
    mutationFn: () => call<void>('quantization/traffic', { method: 'DELETE' }),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ['quantizations', 'traffic'] }),
  })
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
          // Traffic was made a corpus of when it was asked: the same rows again, not what is kept by now.
          calibration: { ...(corpus ? { source: 'corpus', corpus } : { source }), samples, tokens },
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
