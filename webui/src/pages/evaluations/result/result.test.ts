import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import type { Finding, ResultDoc } from '@/api/evaluationTypes'
import { evaluations as english } from '@/i18n/en/evaluations'
import { evaluations as chinese } from '@/i18n/zh/evaluations'
import { answerOf } from './answerText'
import { figure, latency, objectiveName, rangeText, summaryOf } from './figures'
import { evidenceRows, textOf } from './findingText'
import { gathered, isGrave } from './gathered'
import { bestOf, objectivesOf, sweepOf } from './sweep'

const fixture = (name: string) =>
  JSON.parse(readFileSync(new URL(`./fixtures/${name}.json`, import.meta.url), 'utf8')) as ResultDoc

/**
 * What `python -m evaluation run` left after a search against a server of 4 slots of 115 ms, on a machine so busy that
 * the client was late at three levels; after a rate above capacity; and after the same seed twice.
 */
const search = fixture('search')
const overloaded = fixture('overloaded')
const inflated = fixture('inflated')
const KNOWN_CAPACITY = 4 / 0.115

describe('a real search', () => {
  const objectives = objectivesOf(search)
  const sweep = sweepOf(search, objectives[0])

  it('is shown as one point a level, in the order of rates, on the start that the objective names', () => {
    expect(sweep.levels).toHaveLength(search.levels.length)
    expect(sweep.levels.every((one, at) => at === 0 || one.rate >= (sweep.levels[at - 1]?.rate ?? 0))).toBe(
      true,
    )
    const [first] = search.levels
    if (!first || !objectives[0]) throw new Error('the fixture has no level')
    expect(sweep.levels.find((one) => one.index === first.index)?.latency).toBe(
      summaryOf(first, objectives[0])?.p95,
    )
  })

  it('has its best point at a rate that passed, below what failed', () => {
    const best = bestOf(search.levels)
    expect(best?.decision).toBe('pass')
    expect(best?.rate).toBeLessThanOrEqual(KNOWN_CAPACITY)
    expect(search.capacity?.low).not.toBeNull()
    expect(sweep.best).toBe(best?.index)
  })

  it('says its answer in both languages, with an open end where no rate failed', () => {
    for (const text of [english, chinese]) {
      expect(answerOf(search, text)).toContain(figure(search.capacity?.low))
      expect(
        answerOf({ ...search, capacity: { low: 20, high: 21.5, decision: 'certified', levels: 8 } }, text),
      ).toMatch(/20 .*21\.5/)
    }
  })

  it('does not raise the alarm for levels that the search itself left out', () => {
    const found = gathered(search)
    expect(found.find(({ finding }) => finding.code === 'client_bound')).toMatchObject({
      levels: 3,
      rates: [20, 80],
    })
    expect(found.filter((one) => isGrave(one, search))).toEqual([])
    expect(search.verdict).toBe('pass')
  })

  it('has words in both languages for each of its findings, without holes', () => {
    for (const text of [english, chinese]) {
      for (const { finding } of [search, overloaded, inflated].flatMap(gathered)) {
        expect(text.findings[finding.code], finding.code).toBeDefined()
        const { cause } = textOf(finding, text.findings, (said) => said)
        expect(cause, finding.code).not.toMatch(/undefined|NaN|\[object/)
      }
    }
  })
})

describe('findings', () => {
  const finding = (code: string, evidence: Record<string, unknown>): Finding => ({
    code,
    severity: 'error',
    cause: 'As the run said it.',
    remedy: 'Do so.',
    evidence,
    level: null,
  })

  it('put shares, times and lists as people read them', () => {
    const { cause } = textOf(
      finding('cache_inflated', { expected: 0.02, measured: 0.934, source: 'usage' }),
      english.findings,
      (said) => said,
    )
    expect(cause).toContain('93.4 %')
    expect(cause).toContain('2 %')
    const rows = evidenceRows({ pacing_p99_ms: 12.34, codes: { timeout: 3, http_503: 1 }, none: null }, {})
    expect(rows).toEqual([
      { name: 'Pacing p99', value: '12.3 ms' },
      { name: 'Codes', value: 'timeout 3, http_503 1' },
    ])
  })

  it('are shown as the run said them where the console has no words', () => {
    const told = textOf(finding('brand_new', {}), english.findings, (said) => `<${said}>`)
    expect(told).toEqual({ title: 'Brand new', cause: '<As the run said it.>', remedy: '<Do so.>' })
  })

  it('have the same codes in both languages', () => {
    expect(Object.keys(chinese.findings).sort()).toEqual(Object.keys(english.findings).sort())
  })

  it('are grave where they hit every level, or made the run invalid', () => {
    const grave = (result: ResultDoc) =>
      gathered(result)
        .filter((one) => isGrave(one, result))
        .map(({ finding: { code } }) => code)
    expect(grave(overloaded)).toEqual(['queue_build_up'])
    expect(grave(inflated)).toEqual(['cache_inflated'])
    expect(grave({ ...search, verdict: 'invalid' })).toEqual(['client_bound'])
  })
})

describe('numbers', () => {
  it('keep three digits and their unit', () => {
    expect([0, 0.12345, 2.5, 18.34, 1240.4, null].map(figure)).toEqual([
      '0',
      '0.123',
      '2.5',
      '18.3',
      '1240',
      '–',
    ])
    expect([12.44, 123.4, 1_840, 75_000].map(latency)).toEqual(['12.4 ms', '123 ms', '1.84 s', '1 min 15 s'])
    expect(rangeText(233.4, 252.1, 'ms')).toBe('233 … 252 ms')
    expect(rangeText(843, 1_050, 'ms')).toBe('843 ms … 1.05 s')
    expect(rangeText(2_990, null, 'ms')).toBe('2.99 s … ∞')
    expect(objectiveName({ metric: 'e2el', quantile: 0.99, limit_ms: 2_000 })).toBe('P99 E2EL ≤ 2 s')
  })
})
