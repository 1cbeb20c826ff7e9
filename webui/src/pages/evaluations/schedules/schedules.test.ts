import { describe, expect, it } from 'vitest'
import { CRON_PRESETS, isCron, presetOf } from './cron'
import { markOf } from './marks'

describe('cron', () => {
  it('takes five fields, and names the preset that it is', () => {
    expect(Object.values(CRON_PRESETS).every(isCron)).toBe(true)
    expect(isCron('30 2 * *')).toBe(false)
    expect(isCron('30 2 * * * *')).toBe(false)
    expect(isCron('30 2 * * mon-fri')).toBe(true)
    expect(isCron('every night at two o')).toBe(true) // the form alone: the platform names the field
    expect(presetOf('30 2 * * 1')).toBe('weekly')
    expect(presetOf('5 4 * * *')).toBe('own')
  })
})

describe('marks', () => {
  it('shows a regression as a failure even where the objectives passed', () => {
    const regression = { figure: 'e2el.p95' } as never
    expect(markOf({ state: 'completed', verdict: 'pass', regressions: [regression] })).toBe('fail')
    expect(markOf({ state: 'completed', verdict: 'pass', regressions: [] })).toBe('pass')
    expect(markOf({ state: 'running', verdict: '', regressions: [] })).toBe('running')
    expect(markOf({ state: 'errored', verdict: '', regressions: [] })).toBe('none')
  })
})
