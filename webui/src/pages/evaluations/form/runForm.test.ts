import { describe, expect, it } from 'vitest'
import { fewestFor } from '../result/figures'
import { leastSeconds, NEW_RUN, ratesOf, sampleWarning, toSpec } from './runForm'

const p99 = { quantile: 0.99, metric: 'e2el' as const, limit_ms: 2_000 }
const p95 = { quantile: 0.95, metric: 'ttft' as const, limit_ms: 500 }

describe('sample size', () => {
  it('knows the fewest requests that certify a quantile at 95 %', () => {
    expect([0.9, 0.95, 0.99].map((quantile) => fewestFor(quantile))).toEqual([29, 59, 299])
  })

  it('says when nothing could be certified, and when the sample is thin', () => {
    expect(sampleWarning([p95, p99], 298)).toMatchObject({ quantile: 0.99, fewest: 299, kind: 'tooFew' })
    expect(sampleWarning([p99], 299)).toMatchObject({ kind: 'thin', fewest: 1_000 })
    expect(sampleWarning([p99], 1_000)).toBeNull()
    expect(sampleWarning([p95], 298)).toBeNull()
    expect(sampleWarning([], 1)).toBeNull()
  })
})

describe('spec', () => {
  it('leaves out what was left empty, and gives shares as shares', () => {
    const spec = toSpec({ ...NEW_RUN, tolerance: 10 })
    expect(spec.load).toEqual({
      kind: 'search',
      arrivals: 'poisson',
      low: 0.5,
      tolerance: 0.1,
      max_levels: 12,
    })
    expect(spec.scenario).toBe('')
    expect(spec.slo).toEqual([{ metric: 'e2el', quantile: 0.99, limit_ms: 2_000 }])
  })

  it('judges a closed loop from the real start: there is no planned one', () => {
    const spec = toSpec({ ...NEW_RUN, load: 'concurrency', slo: [p99, { ...p99, metric: 'tpot' }] })
    expect(spec.load).toEqual({ kind: 'concurrency', concurrency: 8 })
    expect(spec.slo?.map((one) => one.start)).toEqual(['actual', undefined])
  })

  it('reads files from the texts of the team', () => {
    const spec = toSpec({ ...NEW_RUN, dataset: 'trace', corpus: 'abc', format: 'mooncake' })
    expect(spec.dataset).toEqual({ kind: 'trace', path: 'corpus:abc', format: 'mooncake' })
  })

  it('takes recorded times from a trace only', () => {
    const recorded = { ...NEW_RUN, load: 'rate' as const, arrivals: 'trace' }
    expect(toSpec({ ...recorded, dataset: 'trace' }).load).toEqual({ kind: 'rate', arrivals: 'trace' })
    expect(toSpec(recorded).load).toEqual({ kind: 'rate', arrivals: 'poisson', rate: 1 })
  })
})

describe('rates', () => {
  it('takes commas of both alphabets, goes upwards, and refuses what is no rate', () => {
    expect(ratesOf('4, 0.5, 1，2')).toEqual([0.5, 1, 2, 4])
    expect(ratesOf('1, zero')).toBeNull()
    expect(ratesOf('1, -2')).toBeNull()
    expect(ratesOf(' ')).toBeNull()
  })

  it('tells how long given rates take, and not what a search will try', () => {
    expect(leastSeconds({ ...NEW_RUN, load: 'sweep', rates: '1, 100' })).toBe(1_020)
    expect(leastSeconds({ ...NEW_RUN, load: 'search' })).toBeNull()
  })
})
