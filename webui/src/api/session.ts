import { useMutation, useQuery } from '@tanstack/react-query'
import { preferences } from '@/app/preferences'
import { ApiError, call } from './client'
import { queryClient, SESSION_KEY } from './queryClient'
import type { Session } from './types'

let lastUser: string | null = null

function adopt(session: Session): Session {
  lastUser = session.user.id
  preferences.adopt(session.user)
  return session
}

async function fetchSession(): Promise<Session | null> {
  try {
    return adopt(await call<Session>('auth/session'))
  } catch (error) {
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) return null
    throw error
  }
}

/** The signed-in person, or null. */
export function useSessionQuery() {
  return useQuery({ queryKey: SESSION_KEY, queryFn: fetchSession, staleTime: Number.POSITIVE_INFINITY })
}

/** For what is shown only to people who are signed in. */
export function useSession(): Session {
  const session = useSessionQuery().data
  if (!session) throw new Error('useSession outside a signed-in page')
  return session
}

/** True where the person's role in the team allows changes. */
export function useMayChange(): boolean {
  const { user, team } = useSession()
  return user.is_admin || (team !== null && team.role !== 'viewer')
}

export function useSignIn() {
  return useMutation({
    mutationFn: (body: { username: string; password: string }) =>
      call<Session>('auth/login', { method: 'POST', body }),
    onSuccess: (session) => {
      // Nothing that the page holds of one person may be seen by the next.
      if (lastUser !== null && lastUser !== session.user.id) return window.location.reload()
      queryClient.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== SESSION_KEY[0] })
      queryClient.setQueryData(SESSION_KEY, adopt(session))
    },
  })
}

export function useSignOut() {
  return useMutation({
    mutationFn: () => call<void>('auth/logout', { method: 'POST' }),
    onSuccess: () => {
      sessionStorage.clear()
      window.location.assign('/')
    },
  })
}

export function useSwitchTeam() {
  return useMutation({
    mutationFn: (team: string) => call<void>('auth/team', { method: 'POST', body: { team } }),
    // Nothing of the old team may stay on the screen or in the cache.
    onSuccess: () => {
      sessionStorage.clear()
      window.location.assign('/')
    },
  })
}

export function useChangePassword() {
  return useMutation({
    mutationFn: (body: { current: string; new: string }) =>
      call<void>('auth/password', { method: 'POST', body }),
  })
}

export function useSavePreferences() {
  return useMutation({
    mutationFn: (body: { language?: string; theme?: string }) =>
      call<Session>('auth/session', { method: 'PATCH', body }),
  })
}
