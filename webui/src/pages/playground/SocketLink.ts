// The websocket of the playground: one per page, opened with the first message, kept while answers are open.

import type { Answer, Frame } from './frames'
import type { Link, LinkOwner, StartBody } from './link'

const OPEN_WITHIN_MS = 4_000
const RETRY_MS = 700
/** Refusals in a row, without one opening, after which plain HTTP takes over. */
const GIVE_UP_AFTER = 3

export class SocketLink implements Link {
  private socket: WebSocket | null = null
  private failures = 0
  private timer = 0

  constructor(
    private readonly owner: LinkOwner,
    private readonly onUnavailable: () => void,
  ) {}

  start(body: StartBody): void {
    if (this.connected()) this.send({ type: 'start', ...body })
    else this.connect() // what is waiting is sent once it opens
  }

  stop(answer: Answer): void {
    if (this.connected()) this.send({ type: 'stop', chat: answer.chat, lane: answer.lane })
  }

  resume(answer: Answer): void {
    if (this.connected())
      this.send({ type: 'resume', chat: answer.chat, lane: answer.lane, after: answer.seq })
    else this.connect()
  }

  close(): void {
    clearTimeout(this.timer)
    const socket = this.socket
    this.socket = null
    socket?.close()
  }

  connected(): boolean {
    return this.socket?.readyState === WebSocket.OPEN
  }

  private send(message: object): void {
    this.socket?.send(JSON.stringify(message))
  }

  private connect(): void {
    if (this.socket) return
    clearTimeout(this.timer)
    const scheme = window.location.protocol === 'https:' ? 'wss' : 'ws'
    const socket = new WebSocket(`${scheme}://${window.location.host}/ws/chat`)
    this.socket = socket
    this.timer = window.setTimeout(
      () => socket.readyState === WebSocket.CONNECTING && socket.close(),
      OPEN_WITHIN_MS,
    )
    socket.onopen = () => {
      clearTimeout(this.timer)
      this.failures = 0
      this.owner.reconnected()
    }
    socket.onmessage = (message) => this.owner.receive(JSON.parse(String(message.data)) as Frame)
    socket.onclose = () => {
      if (this.socket !== socket) return
      this.socket = null
      clearTimeout(this.timer)
      this.failures += 1
      if (this.failures >= GIVE_UP_AFTER) this.onUnavailable()
      else if (this.owner.hasOpen()) {
        this.owner.disconnected()
        this.timer = window.setTimeout(() => this.connect(), RETRY_MS * this.failures)
      }
    }
  }
}
