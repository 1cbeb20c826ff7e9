import type { Answer, Frame } from './frames'
import type { Message } from './history'

export interface StartBody {
  chat: string
  lane: string
  model: string
  messages: Message[]
  params: Record<string, unknown>
  /** Asks for who guessed which part of the answer; engines that can't tell answer as ever. */
  sources: true
}

/** A way to the platform for answers. Frames come back through its owner, in any order and number. */
export interface Link {
  /** True where a start leaves at once; else `reconnected` will say when to start. */
  connected(): boolean
  start(body: StartBody): void
  stop(answer: Answer): void
  resume(answer: Answer): void
  close(): void
}

export interface LinkOwner {
  receive(frame: Frame): void
  /** The link is there (again): start what was not sent, resume what was. */
  reconnected(): void
  disconnected(): void
  hasOpen(): boolean
}
