// Looking into running instances, and comparing versions.

import { useMutation, useQuery } from '@tanstack/react-query'
import { call, download } from './client'
import { queryClient } from './queryClient'
import type { CompareInput, InstanceMemory, Job } from './types'

export function useInstanceMemory(id: string) {
  return useQuery({
    queryKey: ['instances', id, 'memory'],
    queryFn: ({ signal }) => call<InstanceMemory>(`instances/${id}/memory`, { signal }),
    retry: false,
    refetchOnWindowFocus: false,
  })
}

export type Recorded = 'trace' | 'memory/snapshot'

/** Records, and has the browser save the file. */
export function useRecord(id: string, what: Recorded) {
  return useMutation({
    mutationFn: (body: { steps: number; timeout_s: number }) =>
      download(`instances/${id}/${what}`, { method: 'POST', body }),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ['deployments', 'events'] }),
  })
}

export function useCompare(version: string) {
  return useMutation({
    mutationFn: (body: CompareInput) => call<Job>(`versions/${version}/compare`, { method: 'POST', body }),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ['jobs'] }),
  })
}
