// Jobs, nodes, keys, usage, overview and checklist.

import { useMutation, useQuery } from '@tanstack/react-query'
import { call } from './client'
import { usePace } from './live'
import { queryClient } from './queryClient'
import type {
  ApiKey,
  ApiKeyInput,
  ChecklistStep,
  Job,
  NewApiKey,
  Node,
  Overview,
  Page,
  Usage,
  UsageGroup,
} from './types'

export function useChecklist() {
  return useQuery({
    queryKey: ['checklist'],
    queryFn: ({ signal }) => call<ChecklistStep[]>('checklist', { signal }),
    refetchInterval: usePace(),
  })
}

export function useOverview() {
  return useQuery({
    queryKey: ['overview'],
    queryFn: ({ signal }) => call<Overview>('overview', { signal }),
    refetchInterval: usePace(10_000), // traffic has no events
  })
}

export interface JobFilter {
  state?: string
  kind?: string
  page?: number
}

export const JOBS_PER_PAGE = 25

export function useJobs(filter: JobFilter) {
  return useQuery({
    queryKey: ['jobs', 'list', filter],
    queryFn: ({ signal }) =>
      call<Page<Job>>('jobs', { query: { ...filter, page_size: JOBS_PER_PAGE }, signal }),
    placeholderData: (previous) => previous,
    refetchInterval: usePace(),
  })
}

export function useJob(id: string) {
  return useQuery({
    queryKey: ['jobs', 'one', id],
    queryFn: ({ signal }) => call<Job>(`jobs/${id}`, { signal }),
    refetchInterval: usePace(),
  })
}

export function useJobAction(id: string) {
  return useMutation({
    mutationFn: (act: 'cancel' | 'retry') => call<Job>(`jobs/${id}/${act}`, { method: 'POST' }),
    onSuccess: (_job, act) => {
      // A new attempt writes a new log.
      if (act === 'retry') queryClient.resetQueries({ queryKey: ['log', `jobs/${id}/log`] })
      return queryClient.invalidateQueries({ queryKey: ['jobs'] })
    },
  })
}

const HEARTBEAT_MS = 5_000

export function useNodes() {
  return useQuery({
    queryKey: ['nodes', 'list'],
    queryFn: ({ signal }) => call<Page<Node>>('nodes', { query: { page_size: 500 }, signal }),
    refetchInterval: usePace(HEARTBEAT_MS),
  })
}

export function useNode(id: string) {
  return useQuery({
    queryKey: ['nodes', 'one', id],
    queryFn: ({ signal }) => call<Node>(`nodes/${id}`, { signal }),
    refetchInterval: usePace(HEARTBEAT_MS),
  })
}

export function useNodeAction() {
  return useMutation({
    mutationFn: ({ id, act }: { id: string; act: 'cordon' | 'uncordon' | 'drain' }) =>
      call<Node>(`nodes/${id}/${act}`, { method: 'POST' }),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ['nodes'] }),
  })
}

export function useKeys() {
  return useQuery({
    queryKey: ['keys'],
    queryFn: ({ signal }) => call<Page<ApiKey>>('keys', { query: { page_size: 500 }, signal }),
    refetchInterval: usePace(),
  })
}

export function useCreateKey() {
  return useMutation({
    mutationFn: (body: ApiKeyInput) => call<NewApiKey>('keys', { method: 'POST', body }),
    onSuccess: () => {
      queryClient.invalidateQueries({ queryKey: ['checklist'] })
      return queryClient.invalidateQueries({ queryKey: ['keys'] })
    },
  })
}

export function useRevokeKey() {
  return useMutation({
    mutationFn: (id: string) => call<void>(`keys/${id}`, { method: 'DELETE' }),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ['keys'] }),
  })
}

export function useUsage(query: { since: string; until?: string; group: UsageGroup }) {
  return useQuery({
    queryKey: ['usage', query],
    queryFn: ({ signal }) => call<Usage>('usage', { query: { ...query }, signal }),
    placeholderData: (previous) => previous,
  })
}
