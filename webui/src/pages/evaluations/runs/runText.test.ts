import { describe, expect, it } from 'vitest'
import { evaluations as english } from '@/i18n/en/evaluations'
import { evaluations as chinese } from '@/i18n/zh/evaluations'
import { progressText } from './progressText'
import { answerOfFigures, figureName } from './runText'

const list = (parts: string[]) => parts.join(' + ')

describe('progress of a run', () => {
  it('is said in both languages with the reasons of the level', () => {
    const said = 'level 2, 12.5 requests/s: 43 of 150 requests, drift, balance'
    expect(progressText(said, english, list)).toContain(
      'parts of the window differ + less is done than offered',
    )
    const zh = progressText(said, chinese, list)
    expect(zh).toContain('43')
    expect(zh).not.toMatch(/[a-z]{4}/)
    expect(progressText('level 1, load: 4 of 9 requests, steady', english, list)).toContain('Closed loop')
  })

  it('stays as it came where it is no level', () => {
    expect(progressText('gsm8k: 3 of 50', english, list)).toBe('gsm8k: 3 of 50')
  })
})

describe('figures of a run', () => {
  const figure = { value: 8.1, low: 8.1, high: null, unit: 'req/s', better: 'higher' as const }

  it('are known by the capacity, whose upper end may be open', () => {
    expect(answerOfFigures({ 'e2el.p95': { ...figure, unit: 'ms' }, capacity: figure }, english)).toBe(
      '≥ 8.1 req/s',
    )
    expect(answerOfFigures({ capacity: { ...figure, high: 8.4 } }, english)).toBe('8.1 … 8.4 req/s')
    expect(answerOfFigures({}, english)).toBe('–')
  })

  it('have names that people know, with the rate of their level in front', () => {
    expect(figureName('ttft_intended.p99', english)).toBe('TTFT P99')
    expect(figureName('2.5/s goodput', english)).toBe('2.5/s Goodput')
    expect(figureName('gsm8k.accuracy', english)).toBe('gsm8k.accuracy')
  })
})
