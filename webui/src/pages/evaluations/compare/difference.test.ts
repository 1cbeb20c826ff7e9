import { describe, expect, it } from 'vitest'
import type { RunFigure } from '@/api/evaluations'
import { differences, holm, twoSided } from './difference'

const figure = (value: number, half: number, better: 'lower' | 'higher' = 'lower'): RunFigure => ({
  value,
  low: value - half,
  high: value + half,
  unit: 'ms',
  better,
})

describe('difference of two figures', () => {
  it('has the interval of two independent measurements', () => {
    const [one] = differences({ a: figure(100, 3) }, { a: figure(110, 4) })
    expect(one?.change).toBeCloseTo(0.1)
    expect(one?.low).toBeCloseTo(0.05) // 10 − √(3² + 4²), of 100
    expect(one?.high).toBeCloseTo(0.15)
    expect(one?.p).toBeCloseTo(twoSided((1.959964 * 10) / 5))
    expect(one?.conclusion).toBe('worse')
  })

  it('takes the sides of skewed intervals that face each other', () => {
    const skewed = { ...figure(100, 0), low: 99, high: 108 }
    const [one] = differences({ a: skewed }, { a: figure(109.5, 6) })
    expect(one?.low).toBeCloseTo(-0.005) // 9.5 − √(6² + 8²)
    expect(one?.conclusion).toBe('unclear')
  })

  it('does not call a change what is certain but small, nor equal what is only uncertain', () => {
    const result = differences(
      { certain: figure(100, 0.1), vague: figure(100, 30), alike: figure(100, 1) },
      { certain: figure(102, 0.1), vague: figure(110, 30), alike: figure(100.2, 1) },
    )
    const by = Object.fromEntries(result.map((one) => [one.name, one.conclusion]))
    expect(by).toEqual({ certain: 'same', vague: 'unclear', alike: 'same' })
  })

  it('knows which way is better, and puts what became worse first', () => {
    const result = differences(
      { latency: figure(100, 1), rate: figure(100, 1, 'higher'), gone: figure(1, 0) },
      { latency: figure(80, 1), rate: figure(80, 1, 'higher') },
    )
    expect(result.map((one) => [one.name, one.conclusion])).toEqual([
      ['rate', 'worse'],
      ['latency', 'better'],
    ])
  })

  it('says nothing certain of a figure without an interval', () => {
    const bare: RunFigure = { value: 1, low: null, high: null, unit: '', better: 'lower' }
    expect(differences({ a: bare }, { a: { ...bare, value: 2 } })[0]).toMatchObject({
      p: null,
      conclusion: 'unclear',
    })
  })
})

describe('statistics', () => {
  it('has the tails of the normal distribution', () => {
    expect(twoSided(1.959964)).toBeCloseTo(0.05, 6)
    expect(twoSided(2.575829)).toBeCloseTo(0.01, 6)
    expect(twoSided(0)).toBeCloseTo(1, 6)
  })

  it("corrects as in Holm's example, keeping the order", () => {
    const corrected = holm([0.01, 0.04, 0.03, 0.005, null])
    ;[0.03, 0.06, 0.06, 0.02].forEach((p, at) => {
      expect(corrected[at]).toBeCloseTo(p, 12)
    })
    expect(corrected[4]).toBeNull()
  })
})
