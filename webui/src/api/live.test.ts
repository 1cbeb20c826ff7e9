import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { live, patchJob, staleAfter } from './live'
import { queryClient } from './queryClient'
import type { Event } from './types'

const MODEL = '0198a000-0000-7000-8000-000000000001'
const VERSION = '0198a000-0000-7000-8000-000000000002'

function event(kind: string, subject_type: string, payload: Record<string, unknown> = {}): Event {
  const told = { text: '', actor: '', created_at: '2026-01-01T00:00:00Z' }
  return { id: 8, kind, subject_type, subject_id: VERSION, payload, ...told }
}

/** The last socket that was opened; tests speak as the platform through it. */
class FakeSocket {
  static last: FakeSocket
  onmessage: ((message: { data: string }) => void) | null = null
  onclose: ((event: { code: number }) => void) | null = null
  constructor() {
    FakeSocket.last = this
  }
  close(): void {}
  say(message: object): void {
    this.onmessage?.({ data: JSON.stringify(message) })
  }
}

/** Queries of another tab, fetched a moment ago. */
const SHOWN = {
  list: ['models', 'list'],
  detail: ['models', 'one', MODEL],
  ready: ['models', 'ready-versions'],
  lineage: ['models', 'lineage', MODEL],
  version: ['versions', VERSION],
  jobs: ['jobs', 'list', {}],
}
const isStale = (key: unknown[]) => queryClient.getQueryState(key)?.isInvalidated

describe('an event of another tab', () => {
  let stop = () => {}

  beforeEach(() => {
    vi.useFakeTimers()
    vi.stubGlobal('WebSocket', FakeSocket)
    vi.stubGlobal('document', { hidden: false, addEventListener() {}, removeEventListener() {} })
    vi.stubGlobal('window', { location: { protocol: 'http:', host: 'h' }, setTimeout, clearTimeout })
    stop = live.start()
    FakeSocket.last.say({ type: 'hello', last_event_id: 7 })
    vi.advanceTimersByTime(1000) // the greeting marks everything, once
    for (const key of Object.values(SHOWN)) queryClient.setQueryData(key, {})
  })

  afterEach(() => {
    stop()
    queryClient.clear()
    vi.useRealTimers()
    vi.unstubAllGlobals()
  })

  for (const kind of ['version.importing', 'version.ready', 'version.failed', 'version.deleted']) {
    it(`${kind} refetches the list of models and the model's page`, () => {
      expect(isStale(SHOWN.list)).toBe(false)
      const payload = { id: VERSION, model: MODEL }
      FakeSocket.last.say({ type: 'event', event: event(kind, 'version', payload) })
      vi.advanceTimersByTime(1000)
      for (const name of ['list', 'detail', 'ready', 'lineage', 'version'] as const) {
        expect(isStale(SHOWN[name]), name).toBe(true)
      }
      expect(isStale(SHOWN.jobs)).toBe(false)
    })
  }
})

describe('progress of a job', () => {
  const key = ['jobs', 'one', VERSION]
  const say = () =>
    patchJob({ type: 'job', id: VERSION, progress: 0.5, progress_text: 'half', state: 'running' })

  afterEach(() => queryClient.clear())

  it('is written into what is shown', () => {
    queryClient.setQueryData(key, { id: VERSION, state: 'queued', progress: 0 })
    say()
    expect(queryClient.getQueryData(key)).toMatchObject({ state: 'running', progress: 0.5 })
  })

  it('that comes behind its end opens it no more', () => {
    const ended = { id: VERSION, state: 'succeeded', progress: 1 }
    queryClient.setQueryData(key, ended)
    queryClient.setQueryData(['jobs', 'list', {}], { results: [ended] })
    say()
    expect(queryClient.getQueryData(key)).toEqual(ended)
    expect(queryClient.getQueryData(['jobs', 'list', {}])).toEqual({ results: [ended] })
  })
})

it('a model that is renamed is renamed wherever its name is shown', () => {
  const stale = staleAfter(event('model.updated', 'model'))?.map(([first]) => first)
  expect(stale).toEqual(expect.arrayContaining(['models', 'versions', 'deployments']))
})

it('what nothing shows makes nothing out of date', () => {
  expect(staleAfter(event('user.created', 'user'))).toBeNull()
})
