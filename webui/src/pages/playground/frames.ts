// Frames of an answer (docs/contracts.md §7) and what becomes of them. Pure, so that every order can be tested.

import { extended, type Piece, type Span } from './drafted/spans'

export interface Usage {
  prompt_tokens: number
  completion_tokens: number
  prompt_tokens_details?: { cached_tokens?: number } | null
  /** Of the generated tokens: guessed before the model said them. Absent: the engine does not tell. */
  completion_tokens_details?: { accepted_prediction_tokens?: number } | null
}
export interface Timing {
  ttft_ms: number | null
  duration_ms: number | null
  tokens_per_s: number | null
}
interface Numbered {
  chat: string
  lane: string
  /** From 1, without gaps; 0 where the input was refused. */
  seq: number
}
export type Frame = Numbered &
  (
    | { type: 'started'; request_id: string; model: string }
    | { type: 'delta'; text: string; pieces?: Piece[] }
    | { type: 'done'; finish_reason: string | null; usage: Usage | null; timing: Timing | null }
    | { type: 'error'; message: string; code: string; hint?: string }
  )

export type AnswerState = 'waiting' | 'streaming' | 'done' | 'stopped' | 'error'

export interface Answer {
  chat: string
  lane: string
  model: string
  state: AnswerState
  text: string
  /** What of `text` was guessed; undefined: nobody told. */
  guessed?: Span[]
  /** Sequence number of the last frame that is in `text`. */
  seq: number
  /** True once the request has left: from then on it is resumed, never started again. */
  sent: boolean
  stopping: boolean
  resuming: boolean
  requestId: string
  finishReason: string | null
  usage: Usage | null
  timing: Timing | null
  error: { message: string; code: string; hint: string } | null
}

export function newAnswer(chat: string, lane: string, model: string): Answer {
  return {
    chat,
    lane,
    model,
    state: 'waiting',
    text: '',
    seq: 0,
    sent: false,
    stopping: false,
    resuming: false,
    requestId: '',
    finishReason: null,
    usage: null,
    timing: null,
    error: null,
  }
}

export function isOpen(answer: Answer): boolean {
  return answer.state === 'waiting' || answer.state === 'streaming'
}

/** The platform has dropped frames that we lack: the answer is read again from its first. */
export function isResync(frame: Frame): boolean {
  return frame.type === 'error' && frame.code === 'resync'
}

/** The answer after `frame`; the same object where the frame is known already; "gap" where one before it is missing. */
export function applyFrame(answer: Answer, frame: Frame): Answer | 'gap' {
  if (!isOpen(answer)) return answer
  if (frame.seq === 0) return frame.type === 'error' ? fail(answer, frame, 0) : answer
  if (frame.seq <= answer.seq) return answer
  if (frame.seq > answer.seq + 1) return 'gap'
  const next = { ...answer, seq: frame.seq, resuming: false }
  switch (frame.type) {
    case 'started':
      return { ...next, requestId: frame.request_id }
    case 'delta':
      return {
        ...next,
        state: 'streaming',
        text: answer.text + frame.text,
        guessed: frame.pieces
          ? extended(answer.guessed ?? [], answer.text.length, frame.pieces)
          : answer.guessed,
      }
    case 'done':
      return {
        ...next,
        state: answer.stopping || frame.finish_reason === 'cancelled' ? 'stopped' : 'done',
        finishReason: frame.finish_reason,
        usage: frame.usage,
        timing: frame.timing,
      }
    case 'error':
      return answer.stopping ? { ...next, state: 'stopped' } : fail(next, frame, frame.seq)
  }
}

function fail(answer: Answer, frame: { message: string; code: string; hint?: string }, seq: number): Answer {
  return {
    ...answer,
    seq: Math.max(seq, answer.seq),
    resuming: false,
    state: 'error',
    error: { message: frame.message, code: frame.code, hint: frame.hint ?? '' },
  }
}
