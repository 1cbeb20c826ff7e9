// The same answers over server-sent events, for networks that let no websocket through.

import { ApiError, address, call, requestHeaders, toError } from '@/api/client'
import type { Answer, Frame } from './frames'
import type { Link, LinkOwner, StartBody } from './link'
import { readEvents } from './sse'

const STREAM = 'playground/stream'
const RETRY_MS = 1_000
const TRIES = 5

export class HttpLink implements Link {
  private streams = new Map<string, AbortController>()
  /** Failures in a row per answer. */
  private failures = new Map<string, number>()

  constructor(private readonly owner: LinkOwner) {}

  connected(): boolean {
    return true
  }

  start(body: StartBody): void {
    const init = {
      method: 'POST',
      headers: requestHeaders(true),
      body: JSON.stringify({ type: 'start', ...body }),
    }
    void this.follow(body.chat, body.lane, address(STREAM), init)
  }

  /** Its last frame comes by the stream that is open. */
  stop(answer: Answer): void {
    const { chat, lane } = answer
    call<unknown>('playground/stop', { method: 'POST', body: { chat, lane } }).catch(() =>
      this.owner.disconnected(),
    )
  }

  resume(answer: Answer): void {
    const { chat, lane, seq } = answer
    const from = address(STREAM, { chat, lane, after: seq })
    void this.follow(chat, lane, from, { headers: requestHeaders(false) })
  }

  close(): void {
    for (const stream of this.streams.values()) stream.abort()
    this.streams.clear()
  }

  private async follow(chat: string, lane: string, from: string, init: RequestInit): Promise<void> {
    const key = chat + lane
    this.streams.get(key)?.abort()
    const abort = new AbortController()
    this.streams.set(key, abort)
    try {
      const response = await fetch(from, { ...init, signal: abort.signal, credentials: 'same-origin' })
      if (!response.ok || response.body === null) throw await toError(response)
      let last: Frame | null = null
      for await (const data of readEvents(response.body)) {
        if (!data.startsWith('{')) continue
        last = JSON.parse(data) as Frame
        this.failures.delete(key)
        this.owner.receive(last)
      }
      if (last?.type !== 'done' && last?.type !== 'error') throw new TypeError('the stream ended early')
    } catch (error) {
      if (!abort.signal.aborted) this.recover(chat, lane, error)
    } finally {
      if (this.streams.get(key) === abort) this.streams.delete(key)
    }
  }

  private recover(chat: string, lane: string, error: unknown): void {
    const tries = (this.failures.get(chat + lane) ?? 0) + 1
    this.failures.set(chat + lane, tries)
    if (error instanceof ApiError) {
      const { message, code, hint } = error
      this.owner.receive({ type: 'error', chat, lane, seq: 0, message, code, hint })
    } else if (tries >= TRIES) {
      this.owner.receive({ type: 'error', chat, lane, seq: 0, message: '', code: 'network' })
    } else {
      this.owner.disconnected()
      window.setTimeout(() => this.owner.reconnected(), RETRY_MS * tries)
    }
  }
}
