import { describe, expect, it } from 'vitest'
import { kneeOf } from './knee'
import { linearScale, logScale, roundTicks } from './scale'

describe('scales', () => {
  it('puts the least at one end and the greatest at the other', () => {
    const scale = logScale([0.5, null, 8, 2], 100, 500)
    expect(scale?.at(0.5)).toBeCloseTo(100)
    expect(scale?.at(8)).toBeCloseTo(500)
    expect(scale?.at(2)).toBeCloseTo(300) // the middle of a logarithm
  })

  it('shows a single level in the middle, and nothing where nothing was measured', () => {
    expect(logScale([3], 0, 200)?.at(3)).toBeCloseTo(100)
    expect(logScale([null, 0, Number.NaN, undefined], 0, 200)).toBeNull()
    expect(linearScale([null], 0, 1)).toBeNull()
  })

  it.each([
    [0.8, 1.3],
    [1, 9],
    [0.01, 400],
    [1e-6, 1e9],
  ])('labels %d…%d with two to seven round numbers', (low, high) => {
    const ticks = roundTicks(low, high)
    expect(ticks.length).toBeGreaterThanOrEqual(2)
    expect(ticks.length).toBeLessThanOrEqual(7)
    expect(ticks.every((tick) => tick >= low * 0.999 && tick <= high * 1.001)).toBe(true)
  })

  it('starts a linear axis at zero', () => {
    const scale = linearScale([7.3, 2], 0, 100)
    expect(scale?.ticks).toEqual([0, 2, 4, 6])
    expect(scale?.at(0)).toBe(0)
  })
})

describe('knee', () => {
  it('is where the queue starts to build: the law of one server, rho/(1-rho)', () => {
    const points = [0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99].map((rate) => ({
      rate,
      latency: 1 / (1 - rate),
    }))
    const knee = kneeOf(points)
    expect(knee?.rate).toBeGreaterThanOrEqual(0.6)
    expect(knee?.rate).toBeLessThanOrEqual(0.9)
  })

  it('is none on a flat line, a straight line, or two points', () => {
    const flat = [1, 2, 4, 8].map((rate) => ({ rate, latency: 100 }))
    const straight = [1, 2, 4, 8].map((rate) => ({ rate, latency: rate * 10 }))
    expect(kneeOf(flat)).toBeNull()
    expect(kneeOf(straight)).toBeNull()
    expect(kneeOf(straight.slice(2))).toBeNull()
  })
})
