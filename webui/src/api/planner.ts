// The capacity planner: evaluation/planner/answers.py, evaluation/profile.py and the platform's kept plans.

import { useMutation, useQuery } from '@tanstack/react-query'
import { call } from './client'
import type { Objective } from './evaluationTypes'
import { usePace } from './live'
import { queryClient } from './queryClient'
import type { components } from './schema'
import type { Page } from './types'

export type Basis = 'calibrated' | 'transferred' | 'bound_only' | 'computed'

/** A reason, a source or a warning: the console has words for the codes that it knows. */
export interface PlanLine {
  code: string
  text: string
  values: Record<string, string | number | boolean | null>
  severity: 'info' | 'warning' | 'error'
}
/** A prediction; `value` is null where only bounds are known. */
export interface PlanFigure {
  metric: string
  unit: string
  low: number
  value: number | null
  high: number
  basis: Basis
  source: string
}
export type MemoryPart =
  | 'weights'
  | 'kv_floor'
  | 'kv_cache'
  | 'activations'
  | 'graphs'
  | 'overhead'
  | 'communication'
  | 'reserve'
export interface MemoryLine {
  part: MemoryPart
  bytes: number
  source: string
  code: string
}
export interface PdAdvice {
  advised: boolean
  prefill_instances: number
  decode_instances: number
  sequences_per_s: number
  mixed_sequences_per_s: number
  transfer_ms: number
  ttft_change: number
  tpot_change: number
  reasons: PlanLine[]
}
export interface PlanChoice {
  gpu: string
  gpu_name: string
  tp: number
  pp: number
  replicas: number
  scheme: string
  kv_dtype: string
  gpus: number
  fits: boolean
  meets: 'yes' | 'no' | 'unknown'
  memory: MemoryLine[]
  usable: number
  kv_tokens: number
  figures: PlanFigure[]
  reasons: PlanLine[]
  basis: Basis
  cost_per_hour: number | null
  pd: PdAdvice | null
}
export interface KvFloor {
  in_flight: number
  quantile: number
  shared: number
  unshared: number
  tokens_shared: number
  tokens_unshared: number
}
export interface PlanSummary {
  peak: number
  rate: number
  prompt_tokens: number
  cached_tokens: number
  output_tokens: number
  longest_tokens: number
  kv_bytes_per_token: number
  parameters: number
  e2el_s: number
  slo: Objective[]
}
export interface PlanAnswer {
  model: string
  profile: string
  created_at: string
  recommended: number | null
  choices: PlanChoice[]
  kv_floor: Record<string, KvFloor>
  rejected: PlanLine[]
  findings: PlanLine[]
  summary: PlanSummary
}
/** A predicted figure beside the measured one. */
export type Residual = components['schemas']['Residual']

export interface PrefixGroup {
  name?: string
  prefix_tokens: number
  share: number
}
export interface BusinessProfile {
  name: string
  arrivals: { rate: number; peak_factor?: number; burstiness?: number }
  lengths: {
    pairs?: [number, number][]
    user_edges?: number[]
    output_edges?: number[]
    counts?: number[][]
  }
  groups?: PrefixGroup[]
  slo?: Objective[]
  source?: string
  notes?: string[]
}
export interface PlanRequest {
  profile: BusinessProfile
  version: string
  constraints: Record<string, unknown>
}
export type KeptPlan = Omit<components['schemas']['Plan'], 'request' | 'answer'> & {
  request: { profile: BusinessProfile; constraints?: Record<string, unknown> }
  answer: PlanAnswer
}

export function usePlans() {
  return useQuery({
    queryKey: ['plans', 'list'],
    queryFn: ({ signal }) => call<Page<KeptPlan>>('evaluations/plans', { query: { page_size: 100 }, signal }),
    refetchInterval: usePace(),
  })
}

export function usePlan(id: string) {
  return useQuery({
    queryKey: ['plans', 'one', id],
    queryFn: ({ signal }) => call<KeptPlan>(`evaluations/plans/${id}`, { signal }),
    enabled: id !== '',
    refetchInterval: usePace(),
  })
}

/** The answer is kept, so that its load test can be held against it. */
export function useMakePlan() {
  return useMutation({
    mutationFn: (body: PlanRequest & { name?: string }) =>
      call<KeptPlan>('evaluations/plans', { method: 'POST', body }),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ['plans'] }),
  })
}

export function useDeletePlan() {
  return useMutation({
    mutationFn: (id: string) => call<void>(`evaluations/plans/${id}`, { method: 'DELETE' }),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ['plans'] }),
  })
}

export function useConfirmPlan(id: string) {
  return useMutation({
    mutationFn: (body: { run: string; choice: number }) =>
      call<KeptPlan>(`evaluations/plans/${id}/confirm`, { method: 'POST', body }),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ['plans'] }),
  })
}

/** A profile of what the team's applications asked, from the records of the gateway. */
export function useFittedProfile() {
  return useMutation({
    mutationFn: (body: { name: string; deployment?: string; slo?: Objective[] }) =>
      call<BusinessProfile>('evaluations/profile', { method: 'POST', body }),
  })
}
