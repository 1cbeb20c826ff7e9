// Speculation: what a deployment's engines say of it, and which versions can be drafts for which.

import { useMutation, useQuery } from '@tanstack/react-query'
import { call } from './client'
import { usePace } from './live'
import { queryClient } from './queryClient'
import type { components } from './schema'

type Schema = components['schemas']

export type SourceFigures = Schema['SourceFigures']
export type SpeculationFigures = Schema['Figures']
export type InstanceSpeculation = Schema['InstanceSpeculation']
export type Speculation = Schema['DeploymentSpeculation']
export type Draft = Schema['Draft']
type Drafts = Schema['Drafts']

const EVERY_MS = 2_000
const MOST_POINTS = 150

/** `points`: tokens per step at each asking since the page was opened; null: nobody was answered. */
export interface FollowedSpeculation {
  now: Speculation
  points: (number | null)[]
}

export function useSpeculation(deployment: string) {
  const queryKey = ['speculation', deployment]
  return useQuery({
    queryKey,
    queryFn: async ({ signal }): Promise<FollowedSpeculation> => {
      const now = await call<Speculation>(`deployments/${deployment}/speculation`, { signal })
      const before = queryClient.getQueryData<FollowedSpeculation>(queryKey)?.points ?? []
      return { now, points: [...before, now.recent?.tokens_per_step ?? null].slice(-MOST_POINTS) }
    },
    refetchInterval: usePace(EVERY_MS),
  })
}

/** Versions that can be drafts for `version`. */
export function useDrafts(version: string | undefined) {
  return useQuery({
    queryKey: ['versions', version, 'drafts'],
    queryFn: ({ signal }) => call<Drafts>(`versions/${version}/drafts`, { signal }),
    enabled: version !== undefined,
  })
}

function refresh(): Promise<void> {
  queryClient.invalidateQueries({ queryKey: ['models'] })
  return queryClient.invalidateQueries({ queryKey: ['versions'] })
}

export interface Pair {
  target: string
  draft: string
}

/** Throws ApiError where the two don't go together; it says why with both numbers. */
export function useRecordDraft() {
  return useMutation({
    mutationFn: ({ target, draft }: Pair) =>
      call<Drafts>(`versions/${target}/drafts/${draft}`, { method: 'PUT' }),
    onSuccess: refresh,
  })
}

export function useForgetDraft() {
  return useMutation({
    mutationFn: ({ target, draft }: Pair) =>
      call<void>(`versions/${target}/drafts/${draft}`, { method: 'DELETE' }),
    onSuccess: refresh,
  })
}
