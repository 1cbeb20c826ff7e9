// Suites, runs, schedules, baselines and gates: the platform's evaluations app.

import { useMutation, useQuery } from '@tanstack/react-query'
import { call, download } from './client'
import type { ResultDoc, RunSpec } from './evaluationTypes'
import { usePace } from './live'
import { queryClient } from './queryClient'
import type { components } from './schema'
import type { Page } from './types'

const ALL = { page_size: 500 }
export const RUNS_PER_PAGE = 25

type Schema = components['schemas']

/** What a suite measures: a load test, a quality run, or both. */
export interface SuiteSpec {
  load?: RunSpec | null
  quality?: Record<string, unknown> | null
  profile?: Record<string, unknown> | null
}
export type Suite = Omit<Schema['Suite'], 'spec'> & { spec: SuiteSpec }
export type Target = Schema['Target']
export type RunState = Schema['EvaluationRunStateEnum']
export type RunPart = Schema['PartsEnum']
/** A number that is compared from run to run, with its own interval. */
export type RunFigure = Schema['Figure']
export type Regression = Schema['Regression']
export type Run = Schema['Run']
export type RunDetail = Omit<Schema['RunDetail'], 'spec' | 'results'> & {
  spec: SuiteSpec
  results: Partial<Record<RunPart, ResultDoc>>
}
export type Schedule = Schema['Schedule']
export type Baseline = Schema['Baseline']
export type Gate = Schema['Gate']
export type Refusal = Schema['Refusal']
export type MoveCheck = Schema['MoveCheck']

export interface TargetInput {
  deployment?: string
  endpoint?: string
}

function refresh(): Promise<void> {
  queryClient.invalidateQueries({ queryKey: ['jobs'] })
  return queryClient.invalidateQueries({ queryKey: ['evaluations'] })
}

export const isEnded = (state: RunState) => !['waiting', 'queued', 'running'].includes(state)

export function useSuites() {
  return useQuery({
    queryKey: ['evaluations', 'suites'],
    queryFn: ({ signal }) => call<Page<Suite>>('evaluations/suites', { query: ALL, signal }),
    refetchInterval: usePace(),
  })
}

export interface RunFilter {
  state?: string
  suite?: string
  schedule?: string
  page?: number
  page_size?: number
}

export function useRuns(filter: RunFilter) {
  return useQuery({
    queryKey: ['evaluations', 'runs', filter],
    queryFn: ({ signal }) =>
      call<Page<Run>>('evaluations/runs', { query: { page_size: RUNS_PER_PAGE, ...filter }, signal }),
    placeholderData: (previous) => previous,
    // Progress of a running run is told twice a second and not stored; the list asks at its own pace.
    refetchInterval: usePace(5_000),
  })
}

const LIVE_MS = 2_000

export function useRun(id: string | undefined) {
  const pace = usePace(LIVE_MS)
  return useQuery({
    queryKey: ['evaluations', 'run', id],
    queryFn: ({ signal }) => call<RunDetail>(`evaluations/runs/${id}`, { signal }),
    enabled: id !== undefined && id !== '',
    refetchInterval: ({ state }) => (state.data && isEnded(state.data.state) ? false : pace),
  })
}

/** A run that is looked at beside others: asked once. */
export const runQuery = (id: string) => ({
  queryKey: ['evaluations', 'run', id],
  queryFn: ({ signal }: { signal: AbortSignal }) => call<RunDetail>(`evaluations/runs/${id}`, { signal }),
})

export function useStartRun() {
  return useMutation({
    mutationFn: (body: TargetInput & { suite: string; seed?: number }) =>
      call<Run>('evaluations/runs', { method: 'POST', body }),
    onSuccess: refresh,
  })
}

export interface SuiteInput {
  name: string
  description?: string
  spec: SuiteSpec
}

/** A suite made of new settings, and its first run. */
export function useStartSuite() {
  return useMutation({
    mutationFn: async ({
      target,
      seed,
      ...body
    }: SuiteInput & { target: TargetInput; seed: number | null }) => {
      const suite = await call<Suite>('evaluations/suites', { method: 'POST', body })
      return call<Run>('evaluations/runs', {
        method: 'POST',
        body: { suite: suite.id, ...(seed === null ? {} : { seed }), ...target },
      })
    },
    // The suite stays where only its run was refused.
    onSettled: refresh,
  })
}

export function useCancelRun(id: string) {
  return useMutation({
    mutationFn: () => call<Run>(`evaluations/runs/${id}/cancel`, { method: 'POST' }),
    onSuccess: refresh,
  })
}

export function useDownloadFile(id: string) {
  return useMutation({
    mutationFn: (name: string) => download(`evaluations/runs/${id}/files/${name}`),
  })
}

export function useSchedules() {
  return useQuery({
    queryKey: ['evaluations', 'schedules'],
    queryFn: ({ signal }) => call<Page<Schedule>>('evaluations/schedules', { query: ALL, signal }),
    refetchInterval: usePace(30_000), // the next times move on by themselves
  })
}

export type ScheduleTimes = Schema['ScheduleTimes']

/** What a cron expression means, before it is saved; null asks nothing. */
export function useScheduleTimes(asked: { cron: string; timezone: string } | null) {
  return useQuery({
    queryKey: ['evaluations', 'times', asked],
    queryFn: ({ signal }) =>
      call<ScheduleTimes>('evaluations/schedules/times', { query: { ...asked }, signal }),
    enabled: asked !== null,
    retry: false,
  })
}

export type ScheduleInput = Schema['ScheduleInputRequest']

export function useSaveSchedule(id: string | null) {
  return useMutation({
    mutationFn: (body: Partial<ScheduleInput>) =>
      call<Schedule>(id === null ? 'evaluations/schedules' : `evaluations/schedules/${id}`, {
        method: id === null ? 'POST' : 'PATCH',
        body,
      }),
    onSuccess: refresh,
  })
}

/** One of the things that are deleted alike. */
export function useRemove(what: 'schedules' | 'gates' | 'baselines' | 'suites') {
  return useMutation({
    mutationFn: (id: string) => call<void>(`evaluations/${what}/${id}`, { method: 'DELETE' }),
    onSuccess: refresh,
  })
}

export function useBaselines() {
  return useQuery({
    queryKey: ['evaluations', 'baselines'],
    queryFn: ({ signal }) => call<Page<Baseline>>('evaluations/baselines', { query: ALL, signal }),
    refetchInterval: usePace(),
  })
}

export function useSetBaseline() {
  return useMutation({
    mutationFn: (run: string) => call<Baseline>('evaluations/baselines', { method: 'POST', body: { run } }),
    onSuccess: refresh,
  })
}

export function useGates() {
  return useQuery({
    queryKey: ['evaluations', 'gates'],
    queryFn: ({ signal }) => call<Page<Gate>>('evaluations/gates', { query: ALL, signal }),
    refetchInterval: usePace(),
  })
}

/** What would stop a move, without making it; null asks nothing. */
export function useMoveCheck(move: { version: string; alias?: string; deployment?: string } | null) {
  return useQuery({
    queryKey: ['evaluations', 'check', move],
    queryFn: ({ signal }) =>
      call<MoveCheck>('evaluations/gates/check', { method: 'POST', body: move, signal }),
    enabled: move !== null,
  })
}

export type GateInput = Schema['GateInputRequest']

export function useSaveGate(id: string | null) {
  return useMutation({
    mutationFn: (body: Partial<GateInput>) =>
      call<Gate>(id === null ? 'evaluations/gates' : `evaluations/gates/${id}`, {
        method: id === null ? 'POST' : 'PATCH',
        body,
      }),
    onSuccess: refresh,
  })
}
