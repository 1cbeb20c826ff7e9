// The chat of this tab. It lives outside the page, so that answers go on while one looks at another page,
// and in the session storage, so that they are resumed after a reload.

import { useSyncExternalStore } from 'react'
import { queryClient, SESSION_KEY } from '@/api/queryClient'
import type { Session } from '@/api/types'
import { type Answer, applyFrame, type Frame, isOpen, isResync, newAnswer } from './frames'
import { HttpLink } from './HttpLink'
import { messagesFor, type Turn } from './history'
import type { Link, LinkOwner } from './link'
import { DEFAULT_PARAMETERS, type Parameters, toParams } from './parameters'
import { SocketLink } from './SocketLink'

/** A chat belongs to the person who holds it, also where two share a browser. */
const STORAGE = `tursiops.chat.${queryClient.getQueryData<Session>(SESSION_KEY)?.user.id ?? ''}`
const LANES = ['a', 'b', 'c', 'd']
export const MOST_LANES = LANES.length
const STOP_WITHIN_MS = 3_000
/** Code of an answer that the platform does not know: it never started, or its frames have expired. */
const UNKNOWN = 'not_found'

export interface Conversation {
  turns: Turn[]
  parameters: Parameters
  overHttp: boolean
}

function stored(): Conversation {
  const empty: Conversation = { turns: [], parameters: DEFAULT_PARAMETERS, overHttp: false }
  try {
    const saved = JSON.parse(sessionStorage.getItem(STORAGE) ?? '{}') as Partial<Conversation>
    return {
      ...empty,
      turns: saved.turns ?? [],
      parameters: { ...DEFAULT_PARAMETERS, ...saved.parameters },
    }
  } catch {
    return empty
  }
}

class ConversationStore implements LinkOwner {
  private value = stored()
  private listeners = new Set<() => void>()
  private link: Link = new SocketLink(this, () => this.useHttp())

  constructor() {
    window.addEventListener('pagehide', () => this.persist())
    const [first] = this.open()
    if (first) this.link.resume(first) // once the link is there, the others follow
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  current = (): Conversation => this.value

  setParameters(change: Partial<Parameters>): void {
    this.set({ parameters: { ...this.value.parameters, ...change } })
    this.persist()
  }

  clear(): void {
    for (const answer of this.open()) this.link.stop(answer)
    this.set({ turns: [] })
    this.persist()
  }

  /** One prompt to each model; each gets its own history. */
  ask(prompt: string, models: string[]): void {
    const id = crypto.randomUUID?.() ?? uuid4()
    const answers = models
      .slice(0, MOST_LANES)
      .map((model, index) => newAnswer(id, LANES[index] ?? 'a', model))
    this.set({ turns: [...this.value.turns, { id, prompt, answers }] })
    for (const answer of answers) this.start(answer)
    this.persist()
  }

  stop(answer: Answer): void {
    if (!isOpen(answer)) return
    this.replace(answer, { ...answer, stopping: true })
    this.link.stop({ ...answer, stopping: true })
    // A platform that is away can't confirm; the reader has decided all the same.
    window.setTimeout(() => {
      const now = this.find(answer.chat, answer.lane)
      if (now && isOpen(now)) this.replace(now, { ...now, state: 'stopped' })
    }, STOP_WITHIN_MS)
  }

  stopAll(): void {
    for (const answer of this.open()) this.stop(answer)
  }

  receive(frame: Frame): void {
    const answer = this.find(frame.chat, frame.lane)
    if (!answer) return
    if (frame.type === 'error' && frame.code === UNKNOWN && answer.seq === 0 && answer.resuming) {
      this.start({ ...answer, resuming: false }) // the request was lost on its way
      return
    }
    if (isResync(frame) && answer.seq > 0) {
      const fresh = { ...answer, seq: 0, text: '', guessed: undefined }
      this.replace(answer, fresh)
      this.link.resume(fresh)
      return
    }
    const next = applyFrame(answer, frame)
    if (next === 'gap') this.link.resume(answer)
    else if (next !== answer) this.replace(answer, next)
  }

  reconnected(): void {
    for (const answer of this.open()) {
      if (!answer.sent) this.start(answer)
      else if (answer.stopping) this.link.stop(answer)
      else this.link.resume(answer)
    }
  }

  disconnected(): void {
    for (const answer of this.open()) if (answer.sent) this.replace(answer, { ...answer, resuming: true })
  }

  hasOpen(): boolean {
    return this.open().length > 0
  }

  private open(): Answer[] {
    return this.value.turns.flatMap((turn) => turn.answers).filter(isOpen)
  }

  private start(answer: Answer): void {
    const index = this.value.turns.findIndex((turn) => turn.id === answer.chat)
    const turn = this.value.turns[index]
    if (!turn) return
    this.replace(answer, { ...answer, sent: this.link.connected() })
    const { system } = this.value.parameters
    this.link.start({
      chat: answer.chat,
      lane: answer.lane,
      model: answer.model,
      messages: messagesFor(answer.model, system, this.value.turns.slice(0, index), turn.prompt),
      params: toParams(this.value.parameters),
      sources: true,
    })
  }

  private useHttp(): void {
    this.link = new HttpLink(this)
    this.set({ overHttp: true })
    this.reconnected()
  }

  private find(chat: string, lane: string): Answer | undefined {
    return this.value.turns.find((turn) => turn.id === chat)?.answers.find((answer) => answer.lane === lane)
  }

  private replace(old: Answer, next: Answer): void {
    const turns = this.value.turns.map((turn) =>
      turn.id === old.chat
        ? { ...turn, answers: turn.answers.map((answer) => (answer.lane === old.lane ? next : answer)) }
        : turn,
    )
    this.set({ turns })
    if (!isOpen(next)) this.persist()
  }

  private set(change: Partial<Conversation>): void {
    this.value = { ...this.value, ...change }
    for (const listener of this.listeners) listener()
  }

  private persist(): void {
    const { turns, parameters } = this.value
    try {
      sessionStorage.setItem(STORAGE, JSON.stringify({ turns, parameters }))
    } catch {
      // Full or blocked storage: the chat lasts as long as the page.
    }
  }
}

/** For plain HTTP, where browsers hide crypto.randomUUID. */
function uuid4(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-')
}

export const conversation = new ConversationStore()

export function useConversation(): Conversation {
  return useSyncExternalStore(conversation.subscribe, conversation.current)
}
