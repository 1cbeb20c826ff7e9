import { useMutation, useQuery } from '@tanstack/react-query'
import { call } from './client'
import { usePace } from './live'
import { queryClient } from './queryClient'
import type { Job, Lineage, Model, ModelDetail, ModelImport, Page, Version, VersionDetail } from './types'

const ALL = { page_size: 500 }

function refresh(): Promise<void> {
  queryClient.invalidateQueries({ queryKey: ['versions'] })
  queryClient.invalidateQueries({ queryKey: ['checklist'] })
  return queryClient.invalidateQueries({ queryKey: ['models'] })
}

export function useModels() {
  return useQuery({
    queryKey: ['models', 'list'],
    queryFn: ({ signal }) => call<Page<Model>>('models', { query: ALL, signal }),
    refetchInterval: usePace(),
  })
}

export function useModel(id: string) {
  return useQuery({
    queryKey: ['models', 'one', id],
    queryFn: ({ signal }) => call<ModelDetail>(`models/${id}`, { signal }),
    refetchInterval: usePace(),
  })
}

export function useVersion(id: string | undefined) {
  return useQuery({
    queryKey: ['versions', id],
    queryFn: ({ signal }) => call<VersionDetail>(`versions/${id}`, { signal }),
    enabled: id !== undefined,
  })
}

/** Every version that can be deployed, newest first within its model. */
export function useReadyVersions() {
  return useQuery({
    queryKey: ['models', 'ready-versions'],
    queryFn: async ({ signal }): Promise<Version[]> => {
      const { results } = await call<Page<Model>>('models', { query: ALL, signal })
      const several = results.filter((model) => model.versions_count > 1)
      const details = await Promise.all(
        several.map(({ id }) => call<ModelDetail>(`models/${id}`, { signal })),
      )
      const single = results.filter((model) => model.versions_count === 1).map((model) => model.latest)
      return [...single, ...details.flatMap((model) => model.versions)]
        .filter((version): version is Version => version?.state === 'ready')
        .sort((a, b) => a.model_name.localeCompare(b.model_name) || b.number - a.number)
    },
  })
}

export function useLineage(modelId: string) {
  return useQuery({
    queryKey: ['models', 'lineage', modelId],
    queryFn: ({ signal }) => call<Lineage>(`models/${modelId}/lineage`, { signal }),
  })
}

export function useImportModel() {
  return useMutation({
    mutationFn: (body: ModelImport) => call<Job>('models/import', { method: 'POST', body }),
    onSuccess: () => {
      queryClient.invalidateQueries({ queryKey: ['jobs'] })
      return refresh()
    },
  })
}

export function useEditModel(id: string) {
  return useMutation({
    mutationFn: (body: { name?: string; description?: string }) =>
      call<Model>(`models/${id}`, { method: 'PATCH', body }),
    onSuccess: refresh,
  })
}

export function useDeleteModel() {
  return useMutation({
    mutationFn: (id: string) => call<void>(`models/${id}`, { method: 'DELETE' }),
    onSuccess: refresh,
  })
}

export function useDeleteVersion() {
  return useMutation({
    mutationFn: (id: string) => call<void>(`versions/${id}`, { method: 'DELETE' }),
    onSuccess: refresh,
  })
}

export function useSetAlias(modelId: string) {
  return useMutation({
    mutationFn: ({ name, ...body }: { name: string; version: string; override?: string }) =>
      call<unknown>(`models/${modelId}/aliases/${encodeURIComponent(name)}`, { method: 'PUT', body }),
    onSuccess: refresh,
  })
}

export function useRemoveAlias(modelId: string) {
  return useMutation({
    mutationFn: (name: string) =>
      call<void>(`models/${modelId}/aliases/${encodeURIComponent(name)}`, { method: 'DELETE' }),
    onSuccess: refresh,
  })
}
