import { useQuery } from '@tanstack/react-query'
import { call } from './client'
import { queryClient } from './queryClient'
import type { LogPart } from './types'

const TAIL_MS = 1_500
export const LONGEST_LOG = 400_000 // characters kept on the page

export interface LogTail extends LogPart {
  /** True where the beginning was dropped to keep the page light. */
  cut: boolean
}

export function appendLog(tail: LogTail, part: LogPart): LogTail {
  const text = tail.text + part.text
  const cut = tail.cut || text.length > LONGEST_LOG
  return { text: text.slice(-LONGEST_LOG), next: part.next, ended: part.ended, cut }
}

/** Follows a log from its last byte offset; `path` is that of its API, e.g. `jobs/<id>/log`. */
export function useLogTail(path: string) {
  const queryKey = ['log', path]
  return useQuery({
    queryKey,
    queryFn: async ({ signal }) => {
      const tail = queryClient.getQueryData<LogTail>(queryKey) ?? {
        text: '',
        next: 0,
        ended: false,
        cut: false,
      }
      return appendLog(tail, await call<LogPart>(path, { query: { after: tail.next }, signal }))
    },
    refetchInterval: (query) => (query.state.data?.ended ? false : TAIL_MS),
    staleTime: 0,
  })
}
