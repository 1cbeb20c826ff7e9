// Follows /ws/live. A page shows a snapshot (its queries); each event marks what it concerns as out of date.

import type { QueryKey } from '@tanstack/react-query'
import { useSyncExternalStore } from 'react'
import { queryClient, SESSION_KEY } from './queryClient'
import type { Event, Job, JobState, Page } from './types'

export type LiveState = 'live' | 'connecting' | 'paused'

export type LiveMessage =
  | { type: 'hello'; last_event_id: number }
  | { type: 'event'; event: Event }
  | { type: 'resync' }
  | { type: 'job'; id: string; progress: number; progress_text: string; state: JobState }

/** Queries that show a kind of subject. Overview and checklist count all of them. */
const SHOWN_BY: Record<string, QueryKey[]> = {
  deployment: [['deployments'], ['nodes']],
  revision: [['deployments']],
  instance: [['deployments'], ['nodes']],
  model: [['models'], ['versions'], ['deployments']], // its name is in theirs
  version: [['models'], ['versions']], // lists and pages of models count and show versions
  job: [['jobs'], ['quantizations']], // its state stands in their table
  quantization: [['quantizations'], ['models'], ['versions']],
  node: [['nodes']],
  gpu: [['nodes']],
  key: [['keys']],
  suite: [['evaluations']],
  evaluation_run: [['evaluations'], ['plans']],
  evaluation_schedule: [['evaluations']],
  evaluation_endpoint: [['evaluations']],
  baseline: [['evaluations']],
  gate: [['evaluations']],
  plan: [['plans']],
}

export function staleAfter(event: Event): QueryKey[] | null {
  const keys = SHOWN_BY[event.subject_type]
  return keys ? [...keys, ['overview'], ['checklist'], ['events']] : null
}

/** Close code of a socket whose session has ended. */
const SIGNED_OUT = 4401
const COALESCE_MS = 250
const FIRST_RETRY_MS = 500
const LONGEST_RETRY_MS = 15_000

class LiveFeed {
  private state: LiveState = 'connecting'
  private listeners = new Set<() => void>()
  private socket: WebSocket | null = null
  private lastEvent: number | null = null
  private failures = 0
  private retryTimer = 0
  private flushTimer = 0
  /** null: everything is out of date. */
  private stale: Map<string, QueryKey> | null = new Map()
  private users = 0

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  current = (): LiveState => this.state

  /** Follows until the returned function is called. A hidden tab rests and catches up when it is seen again. */
  start(): () => void {
    this.users += 1
    document.addEventListener('visibilitychange', this.onVisibility)
    this.connect()
    return () => {
      this.users -= 1
      if (this.users > 0) return
      document.removeEventListener('visibilitychange', this.onVisibility)
      this.disconnect()
      this.lastEvent = null
    }
  }

  private onVisibility = (): void => {
    if (document.hidden) {
      this.disconnect()
      this.setState('paused')
    } else if (this.socket === null) {
      this.failures = 0
      this.connect()
    }
  }

  private connect(): void {
    if (this.socket || document.hidden) return
    clearTimeout(this.retryTimer)
    this.setState('connecting')
    const scheme = window.location.protocol === 'https:' ? 'wss' : 'ws'
    const after = this.lastEvent === null ? '' : `?after=${this.lastEvent}`
    const socket = new WebSocket(`${scheme}://${window.location.host}/ws/live${after}`)
    this.socket = socket
    socket.onmessage = (message) => this.receive(JSON.parse(String(message.data)) as LiveMessage)
    socket.onclose = (event) => {
      if (this.socket !== socket) return
      this.socket = null
      if (event.code === SIGNED_OUT) return queryClient.setQueryData(SESSION_KEY, null)
      this.setState('connecting')
      this.retryLater()
    }
  }

  private disconnect(): void {
    clearTimeout(this.retryTimer)
    const socket = this.socket
    this.socket = null
    socket?.close()
  }

  private retryLater(): void {
    const wait = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.failures)
    this.failures += 1
    // Jitter: a restart of the platform must not bring all consoles back in one moment.
    this.retryTimer = window.setTimeout(() => this.connect(), wait * (0.5 + Math.random()))
  }

  private receive(message: LiveMessage): void {
    if (message.type === 'hello') {
      const first = this.lastEvent === null
      this.failures = 0
      this.lastEvent ??= message.last_event_id
      this.setState('live')
      // What changed between a page's first snapshot and this greeting has no event for us.
      if (first) this.markStale(null)
    } else if (message.type === 'event') {
      this.lastEvent = message.event.id
      this.markStale(staleAfter(message.event))
    } else if (message.type === 'resync') {
      this.lastEvent = null
      this.disconnect()
      this.connect()
    } else {
      patchJob(message)
    }
  }

  private markStale(keys: QueryKey[] | null): void {
    if (keys === null) this.stale = null
    else if (this.stale) for (const key of keys) this.stale.set(JSON.stringify(key), key)
    if (this.flushTimer) return
    this.flushTimer = window.setTimeout(() => {
      this.flushTimer = 0
      const stale = this.stale
      this.stale = new Map()
      const isLive = (key: QueryKey) => key[0] !== 'session' && key[0] !== 'log'
      if (stale === null) queryClient.invalidateQueries({ predicate: (query) => isLive(query.queryKey) })
      else for (const key of stale.values()) queryClient.invalidateQueries({ queryKey: key })
    }, COALESCE_MS)
  }

  private setState(state: LiveState): void {
    if (this.state === state) return
    this.state = state
    for (const listener of this.listeners) listener()
  }
}

const GOING_ON: JobState[] = ['queued', 'running', 'cancelling']

/** Progress comes twice a second and is not stored: it is written straight into what is shown. The platform may hold
 * it back for half a second, so the last of it may come behind the event of the job's end, which stands. */
export function patchJob(message: Extract<LiveMessage, { type: 'job' }>): void {
  const patch = (job: Job): Job =>
    job.id === message.id && GOING_ON.includes(job.state)
      ? { ...job, progress: message.progress, progress_text: message.progress_text, state: message.state }
      : job
  queryClient.setQueryData<Job>(['jobs', 'one', message.id], (job) => job && patch(job))
  queryClient.setQueriesData<Page<Job>>(
    { queryKey: ['jobs', 'list'] },
    (page) => page && { ...page, results: page.results.map(patch) },
  )
}

export const live = new LiveFeed()

export function useLiveState(): LiveState {
  return useSyncExternalStore(live.subscribe, live.current)
}

const POLL_WHILE_APART_MS = 5_000

/** Refetch interval of a page: its own pace, or polling while the socket is away. */
export function usePace(ownMs: number | false = false): number | false {
  const state = useLiveState()
  if (state === 'live' || state === 'paused') return ownMs
  return ownMs === false ? POLL_WHILE_APART_MS : Math.min(ownMs, POLL_WHILE_APART_MS)
}
