// Domain tokens: a version's vocabulary grown by the user's terms, and the texts that tokens are counted on.

import { useMutation, useQuery } from '@tanstack/react-query'
import { ApiError, address, call, requestHeaders, toError } from './client'
import { queryClient } from './queryClient'
import type { components } from './schema'
import type { Job, Page } from './types'

export type Corpus = components['schemas']['Corpus']
export type DomainTokensInput = Partial<components['schemas']['DomainTokensInputRequest']>

export interface TermRow {
  term: string
  /** Of its new tokens: after a blank, and without one. */
  ids: number[]
  /** Tokens of it in running text, before. */
  pieces: number
  /** In the corpus. */
  count?: number
  saved?: number
}

/** The report of a job of kind registry.domain_tokens (docs/domain-tokens.md). */
export interface DomainTokensReport {
  base: { version: string; label: string }
  preview: boolean
  corpus: string
  dtype: DomainTokensInput['dtype']
  vocabulary: { before: number; after: number; rows_before: number; rows: number }
  terms: TermRow[]
  terms_total: number
  skipped: { term: string; code: string; reason: string }[]
  skipped_total: number
  mined: number
  saving: {
    lines: number
    characters: number
    before: number
    after: number
    inexact_lines: number
    examples: { text: string; before: string[]; after: string[] }[]
  } | null
}

export function useCorpora() {
  return useQuery({
    queryKey: ['corpora'],
    queryFn: ({ signal }) => call<Page<Corpus>>('corpora', { query: { page_size: 500 }, signal }),
  })
}

export function useAddCorpus() {
  return useMutation({
    mutationFn: (file: File) => upload(file),
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ['corpora'] }),
  })
}

async function upload(file: File): Promise<Corpus> {
  const body = new FormData()
  body.set('file', file)
  let response: Response
  try {
    const options = {
      method: 'POST',
      headers: requestHeaders(false),
      body,
      credentials: 'same-origin',
    } as const
    response = await fetch(address('corpora'), options)
  } catch {
    throw new ApiError(0, 'network', 'The platform does not answer.')
  }
  if (!response.ok) throw await toError(response)
  return (await response.json()) as Corpus
}

export function useAddDomainTokens(version: string) {
  return useMutation({
    mutationFn: (body: DomainTokensInput) =>
      call<Job>(`versions/${version}/domain-tokens`, { method: 'POST', body }),
    onSuccess: () => {
      queryClient.invalidateQueries({ queryKey: ['models'] })
      return queryClient.invalidateQueries({ queryKey: ['jobs'] })
    },
  })
}
