import { describe, expect, it } from 'vitest'
import type { Sample } from '@/api/evaluationTypes'
import { readSamples, samplesOf } from '@/api/samples'
import { counted, isJudged, judged } from './flips'

const sample = (id: string, score: number | null, error = ''): Sample => ({
  id,
  score,
  error,
  group: '',
  prompt: '',
  expected: '',
  answer: '',
  reason: '',
})

describe('samples', () => {
  it('are counted by what became of them, not by the score alone', () => {
    const before = [sample('a', 1), sample('b', 0), sample('c', 1), sample('d', 1)]
    const now = [
      sample('a', 0),
      sample('b', 1),
      sample('c', 1),
      sample('d', null, 'timeout: …'),
      sample('new', 1),
    ]
    const all = judged(now, before)
    expect(counted(all, 'flipped')).toBe(1) // d has no answer: it did not turn wrong
    expect(counted(all, 'gained')).toBe(1)
    expect(counted(all, 'right')).toBe(3)
    expect(counted(all, 'wrong')).toBe(1)
    expect(counted(all, 'all')).toBe(5)
  })

  it('flip nowhere without a baseline', () => {
    const all = judged([sample('a', 0)], [])
    expect(counted(all, 'flipped')).toBe(0)
    expect(all[0]?.before).toBeNull()
  })

  it('of a text are measured, neither right nor wrong', () => {
    expect(['perplexity', 'consistency'].map(isJudged)).toEqual([false, false])
    expect(['rules', 'choices', 'judge', 'lm_eval'].every(isJudged)).toBe(true)
  })

  it('that can not be read say why', () => {
    const task = { samples: 'samples/gsm8k.jsonl' }
    const files = [{ name: 'quality/samples/gsm8k.jsonl', size: 1, sha256: '' }]
    const ended = { state: 'completed' as const, files: [], files_removed_at: null }
    expect(samplesOf({ ...ended, files }, task)).toBe('there')
    expect(samplesOf({ ...ended, state: 'running' }, task)).toBe('later')
    expect(samplesOf({ ...ended, files_removed_at: '2026-11-30T00:00:00Z' }, task)).toBe('removed')
    expect(samplesOf(ended, task)).toBe('none')
  })

  it('survive a last line that a kill cut off', () => {
    expect(readSamples('{"id": "a", "score": 1}\n\n{"id": "b", "sc')).toHaveLength(1)
  })
})
