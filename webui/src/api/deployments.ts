import { useMutation, useQuery } from '@tanstack/react-query'
import { call } from './client'
import { usePace } from './live'
import { queryClient } from './queryClient'
import type {
  Capacity,
  CapacityInput,
  Deployment,
  DeploymentEdit,
  DeploymentInput,
  EditedDeployment,
  EngineInfo,
  Estimate,
  EstimateInput,
  EventList,
  Page,
  Revision,
  RoleCounts,
} from './types'

function refresh(): Promise<void> {
  queryClient.invalidateQueries({ queryKey: ['overview'] })
  queryClient.invalidateQueries({ queryKey: ['checklist'] })
  return queryClient.invalidateQueries({ queryKey: ['deployments'] })
}

export function useDeployments() {
  return useQuery({
    queryKey: ['deployments', 'list'],
    queryFn: ({ signal }) => call<Page<Deployment>>('deployments', { query: { page_size: 500 }, signal }),
    // While no controller leads, no event tells that a node has fallen silent.
    refetchInterval: usePace(10_000),
  })
}

export function useDeployment(id: string) {
  return useQuery({
    queryKey: ['deployments', 'one', id],
    queryFn: ({ signal }) => call<Deployment>(`deployments/${id}`, { signal }),
    // Progress of a starting instance is observed by its node, not told by an event.
    refetchInterval: usePace(3_000),
  })
}

/** The API may answer a plain list or a page: a deployment has few revisions. */
function listOf<T>(answer: T[] | Page<T>): T[] {
  return Array.isArray(answer) ? answer : answer.results
}

export function useRevisions(id: string) {
  return useQuery({
    queryKey: ['deployments', 'revisions', id],
    queryFn: async ({ signal }) =>
      listOf(await call<Revision[] | Page<Revision>>(`deployments/${id}/revisions`, { signal })),
  })
}

export function useDeploymentEvents(id: string) {
  return useQuery({
    queryKey: ['deployments', 'events', id],
    queryFn: ({ signal }) => call<EventList>(`deployments/${id}/events`, { signal }),
    refetchInterval: usePace(),
  })
}

export function useEngines() {
  return useQuery({
    queryKey: ['engines'],
    queryFn: ({ signal }) => call<EngineInfo[]>('engines', { signal }),
    staleTime: 5 * 60_000,
  })
}

export function useEstimate(input: EstimateInput | null) {
  return useQuery({
    queryKey: ['estimate', input],
    queryFn: ({ signal }) => call<Estimate>('deployments/estimate', { method: 'POST', body: input, signal }),
    enabled: input !== null,
    placeholderData: (previous) => previous,
    retry: false,
  })
}

/** What else would fit there; engines that don't tell answer an error, and nothing is shown. */
export function useCapacity(input: CapacityInput | null) {
  return useQuery({
    queryKey: ['capacity', input],
    queryFn: ({ signal }) => call<Capacity>('deployments/capacity', { method: 'POST', body: input, signal }),
    enabled: input !== null,
    placeholderData: (previous) => previous,
    retry: false,
  })
}

export function useCreateDeployment() {
  return useMutation({
    mutationFn: (body: DeploymentInput) => call<Deployment>('deployments', { method: 'POST', body }),
    onSuccess: refresh,
  })
}

export function useEditDeployment(id: string) {
  return useMutation({
    mutationFn: (body: DeploymentEdit) =>
      call<EditedDeployment>(`deployments/${id}`, { method: 'PATCH', body }),
    onSuccess: refresh,
  })
}

export type DeploymentAction =
  | { act: 'scale'; replicas: RoleCounts }
  | { act: 'stop' }
  | { act: 'start' }
  | { act: 'rollback'; revision: number }

export function useDeploymentAction(id: string) {
  return useMutation({
    mutationFn: ({ act, ...body }: DeploymentAction) =>
      call<Deployment>(`deployments/${id}/${act}`, { method: 'POST', body }),
    onSuccess: refresh,
  })
}

export function useDeleteDeployment() {
  return useMutation({
    mutationFn: (id: string) => call<void>(`deployments/${id}`, { method: 'DELETE' }),
    onSuccess: refresh,
  })
}

export function useRestartInstance() {
  return useMutation({
    mutationFn: (id: string) => call<unknown>(`instances/${id}/restart`, { method: 'POST' }),
    onSuccess: refresh,
  })
}
