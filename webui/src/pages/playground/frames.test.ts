import { describe, expect, it } from 'vitest'
import { type Answer, applyFrame, type Frame, newAnswer } from './frames'

const at = { chat: 'c', lane: 'a' }
const frames: Frame[] = [
  { ...at, seq: 1, type: 'started', request_id: 'r', model: 'm' },
  { ...at, seq: 2, type: 'delta', text: 'Hel' },
  { ...at, seq: 3, type: 'delta', text: 'lo' },
  {
    ...at,
    seq: 4,
    type: 'done',
    finish_reason: 'stop',
    usage: { prompt_tokens: 5, completion_tokens: 2 },
    timing: { ttft_ms: 80, duration_ms: 300, tokens_per_s: 9.5 },
  },
]

function play(answer: Answer, list: Frame[]): Answer {
  return list.reduce((current, frame) => {
    const next = applyFrame(current, frame)
    if (next === 'gap') throw new Error(`gap before ${frame.seq}`)
    return next
  }, answer)
}

describe('frames of an answer', () => {
  it('builds the text and ends with usage and timing', () => {
    const answer = play(newAnswer('c', 'a', 'm'), frames)
    expect(answer).toMatchObject({
      state: 'done',
      text: 'Hello',
      requestId: 'r',
      seq: 4,
      finishReason: 'stop',
    })
    expect(answer.timing?.ttft_ms).toBe(80)
  })

  it('takes no frame twice: a replay after any point gives the same text', () => {
    for (let cut = 0; cut <= frames.length; cut += 1) {
      const half = play(newAnswer('c', 'a', 'm'), frames.slice(0, cut))
      expect(play(half, frames).text).toBe('Hello')
    }
  })

  it('reports a missing frame instead of skipping it', () => {
    const first = play(newAnswer('c', 'a', 'm'), frames.slice(0, 1))
    const third = frames[2] as Frame
    expect(applyFrame(first, third)).toBe('gap')
  })

  it('shows refused input, whatever its number', () => {
    const refused = applyFrame(newAnswer('c', 'a', 'm'), {
      ...at,
      seq: 0,
      type: 'error',
      message: 'unknown model',
      code: 'model_not_found',
    })
    expect(refused).toMatchObject({ state: 'error', error: { code: 'model_not_found', hint: '' } })
  })

  it('keeps the text that came before an error', () => {
    const half = play(newAnswer('c', 'a', 'm'), frames.slice(0, 2))
    const failed = applyFrame(half, {
      ...at,
      seq: 3,
      type: 'error',
      message: 'engine lost',
      code: 'upstream',
    })
    expect(failed).toMatchObject({ state: 'error', text: 'Hel' })
  })

  it('keeps who guessed which part of the text, and takes no part twice', () => {
    const told: Frame[] = [
      frames[0] as Frame,
      {
        ...at,
        seq: 2,
        type: 'delta',
        text: 'Hel',
        pieces: [
          { text: 'H', source: null },
          { text: 'el', source: 'ngram' },
        ],
      },
      { ...at, seq: 3, type: 'delta', text: 'lo', pieces: [{ text: 'lo', source: 'lookahead' }] },
    ]
    const half = play(newAnswer('c', 'a', 'm'), told.slice(0, 2))
    expect(play(half, told).guessed).toEqual([
      { start: 1, end: 3, source: 'ngram' },
      { start: 3, end: 5, source: 'lookahead' },
    ])
    expect(play(newAnswer('c', 'a', 'm'), frames.slice(0, 3)).guessed).toBeUndefined()
  })

  it('calls an answer stopped when its reader stopped it', () => {
    const half = { ...play(newAnswer('c', 'a', 'm'), frames.slice(0, 3)), stopping: true }
    expect(play(half, frames)).toMatchObject({ state: 'stopped', text: 'Hello' })
  })
})
