import { describe, expect, it } from 'vitest'
import type { Speculation, SpeculationFigures } from '@/api/speculation'
import { costRatio, settingText, standingOf } from './standing'

const figures: SpeculationFigures = {
  window_s: 60,
  steps: 400,
  verified_steps: 300,
  rows: 320,
  drafted_tokens: 2_000,
  accepted_tokens: 560,
  tokens: 960,
  guessed_tokens: 560,
  acceptance_length: 2.75,
  hit_rate: 0.28,
  tokens_per_step: 2.4,
  share_speculated: 0.75,
  saved_s: 4.2,
  speedup: 2.2,
  width: 7,
  sources: [],
}
const instance = {
  instance: 'i',
  role: 'unified',
  index: 0,
  state: 'ready',
  mode: 'auto',
  proposers: ['lookahead'],
  reason: '',
  since_start: figures,
  recent: figures,
}
const all: Speculation = {
  speculation: 'auto',
  draft_version: null,
  draft_label: null,
  since_start: figures,
  recent: figures,
  instances: [instance],
}

describe('how speculation stands', () => {
  it.each<[string, Partial<Speculation>]>([
    ['works', {}],
    ['rests', { recent: { ...figures, verified_steps: 0, width: 0 } }],
    ['works', { recent: { ...figures, width: 0 } }],
    ['idle', { recent: { ...figures, steps: 0 } }],
    ['never', { since_start: { ...figures, steps: 0 } }],
    ['off', { speculation: 'off', since_start: null, recent: null }],
    ['unknown', { since_start: null, recent: null }],
    ['noInstance', { since_start: null, recent: null, instances: [] }],
  ])('%s', (standing, change) => {
    expect(standingOf({ ...all, ...change })).toBe(standing)
  })

  it('explains the speed-up: (1 + hits) ÷ cost ratio', () => {
    const parts = costRatio(figures)
    expect(parts?.hits).toBeCloseTo(1.75)
    expect((1 + (parts?.hits ?? 0)) / (parts?.cost ?? 0)).toBeCloseTo(2.2)
    expect(costRatio({ ...figures, acceptance_length: null })).toBeNull()
    expect(costRatio({ ...figures, speedup: null })).toBeNull()
  })

  it('says the setting in words', () => {
    const words = { auto: 'Auto', off: 'Off' }
    expect(settingText('auto', words, (name) => name)).toBe('Auto')
    expect(settingText('off', words, (name) => name)).toBe('Off')
    expect(settingText('lookahead+draft', words, (name) => name.toUpperCase())).toBe('LOOKAHEAD + DRAFT')
  })
})
