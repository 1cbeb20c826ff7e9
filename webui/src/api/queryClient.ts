import { MutationCache, QueryCache, QueryClient } from '@tanstack/react-query'
import { ApiError } from './client'

export const SESSION_KEY = ['session']

/** A session that ended elsewhere shows the sign-in page in place of the page, under the same address. */
function noticeSignOut(error: Error): void {
  if (error instanceof ApiError && error.status === 401) queryClient.setQueryData(SESSION_KEY, null)
}

export const queryClient: QueryClient = new QueryClient({
  queryCache: new QueryCache({ onError: noticeSignOut }),
  mutationCache: new MutationCache({ onError: noticeSignOut }),
  defaultOptions: {
    queries: {
      staleTime: 10_000,
      // What the server refuses stays refused; what did not arrive may arrive.
      retry: (count, error) =>
        count < 2 && !(error instanceof ApiError && error.status >= 400 && error.status < 500),
    },
  },
})
