// Speculation: what a deployment's engines say of it, and which versions can be drafts for which.

import { useMutation, useQuery } from '@tanstack/react-query'
import { call } from './client'
import { usePace } from './live'
import { queryClient } from './queryClient'

export interface SourceFigures {
  source: string
  drafted: number
  accepted: number
  hit_rate: number | null
}
/** null where there is nothing to divide by. */
export interface SpeculationFigures {
  window_s: number
  steps: number
  verified_steps: number
  rows: number
  drafted_tokens: number
  accepted_tokens: number
  acceptance_length: number | null
  hit_rate: number | null
  tokens_per_step: number | null
  share_speculated: number | null
  saved_s: number
  speedup: number | null
  width: number
  sources: SourceFigures[]
}
interface Told {
  since_start: SpeculationFigures | null
  recent: SpeculationFigures | null
}
export interface InstanceSpeculation extends Told {
  instance: string
  role: string
  index: number
  state: string
  reason: string
}
export interface Speculation extends Told {
  speculation: string
  draft_version: string | null
  draft_label: string | null
  instances: InstanceSpeculation[]
}

export interface Draft {
  version: string
  label: string
  model: string
  proposer: string
  parameters: number
  size_bytes: number
  quantization: string
  recorded: boolean
  reason: string
}

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
    queryFn: ({ signal }) => call<{ drafts: Draft[] }>(`versions/${version}/drafts`, { signal }),
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
      call<{ drafts: Draft[] }>(`versions/${target}/drafts/${draft}`, { method: 'PUT' }),
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
