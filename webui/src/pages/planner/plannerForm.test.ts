import { describe, expect, it } from 'vitest'
import type { BusinessProfile } from '@/api/planner'
import { confirmingSpec, NEW_PLAN, profileByHand, spread, toRequest } from './plannerForm'

const mean = (values: number[]) => values.reduce((sum, one) => sum + one, 0) / values.length

describe('a profile by hand', () => {
  it('keeps the means that were said, and scatters about them', () => {
    const pairs = spread(512, 128)
    expect(mean(pairs.map(([user]) => user))).toBeCloseTo(512, -1)
    expect(mean(pairs.map(([, output]) => output))).toBeCloseTo(128, 0)
    expect(Math.max(...pairs.map(([user]) => user))).toBeGreaterThan(900)
  })

  it('has a prefix group only where something is shared', () => {
    const values = { ...NEW_PLAN, version: 'v', varied: false }
    expect(profileByHand(values, 'p').groups).toEqual([])
    expect(profileByHand({ ...values, prefix: 600 }, 'p').groups).toEqual([{ prefix_tokens: 600, share: 1 }])
    expect(profileByHand(values, 'p').lengths.pairs).toEqual([[512, 128]])
  })

  it('takes prices by GPU', () => {
    const values = { ...NEW_PLAN, version: 'v', prices: [{ gpu: 'h20', price: 2.5 }] }
    expect(toRequest(values, profileByHand(values, 'p')).constraints.prices).toEqual({ h20: 2.5 })
  })
})

describe('the load test of a plan', () => {
  const profile: BusinessProfile = {
    name: 'p',
    arrivals: { rate: 2 },
    lengths: {
      pairs: [
        [100, 10],
        [100, 30],
        [300, 10],
      ],
    },
    groups: [
      { prefix_tokens: 600, share: 3 },
      { prefix_tokens: 200, share: 1 },
    ],
  }

  it('asks the lengths of the profile at its peak', () => {
    const spec = confirmingSpec(profile, 4, [])
    expect(spec.load).toMatchObject({ kind: 'rate', rate: 4 })
    expect(spec.dataset).toMatchObject({ kind: 'shared_prefix', prefix_tokens: 500, groups: 2 })
    expect(spec.dataset.prompt).toEqual({ distribution: 'histogram', values: [100, 300], weights: [2, 1] })
  })

  it('counts a histogram by the middles of its cells, and leaves empty ones out', () => {
    const fitted = {
      ...profile,
      groups: [],
      lengths: { user_edges: [0, 100, 200], output_edges: [0, 20], counts: [[3], [0]] },
    }
    const spec = confirmingSpec(fitted, 1, [])
    expect(spec.dataset).toMatchObject({ kind: 'synthetic', prompt: { values: [50], weights: [3] } })
  })

  it('holds thousands of pairs in few values without moving the mean', () => {
    const pairs = Array.from({ length: 5_000 }, (_, at): [number, number] => [at + 1, 1])
    const { prompt } = confirmingSpec({ ...profile, lengths: { pairs } }, 1, []).dataset
    expect(prompt.values.length).toBeLessThanOrEqual(64)
    const total = prompt.weights.reduce((sum, one) => sum + one, 0)
    const middle = prompt.values.reduce((sum, one, at) => sum + one * (prompt.weights[at] ?? 0), 0) / total
    expect(middle).toBeCloseTo(2_500.5, -1)
  })
})
