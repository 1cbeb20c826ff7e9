import { describe, expect, it } from 'vitest'
import { formatBytes, formatMs, formatParameters, formatSeconds, percent, relativeTime } from './units'

describe('units', () => {
  it('says sizes in powers of 1024', () => {
    expect(formatBytes(0)).toBe('0 B')
    expect(formatBytes(1023)).toBe('1023 B')
    expect(formatBytes(1024)).toBe('1.0 KiB')
    expect(formatBytes(102_629_376)).toBe('97.9 MiB')
    expect(formatBytes(1_610_612_736)).toBe('1.50 GiB')
    expect(formatBytes(150 * 1024 ** 3)).toBe('150 GiB')
  })

  it('says durations in the unit that people would use', () => {
    expect(formatMs(84.4)).toBe('84 ms')
    expect(formatMs(1_240)).toBe('1.2 s')
    expect(formatSeconds(125)).toBe('2 min 5 s')
    expect(formatSeconds(119.7)).toBe('2 min')
    expect(formatSeconds(90_000)).toBe('1 d 1 h')
  })

  it('shortens parameter counts', () => {
    expect(formatParameters(134_515_008)).toBe('135M')
    expect(formatParameters(1_540_000_000)).toBe('1.5B')
  })

  it('keeps shares within the bar', () => {
    expect(percent(-1)).toBe(0)
    expect(percent(0.426)).toBe(43)
    expect(percent(7)).toBe(100)
  })

  it('chooses the largest whole unit of a distance in time', () => {
    const now = Date.parse('2026-01-01T12:00:00Z')
    expect(relativeTime('2026-01-01T11:59:30Z', now)).toEqual([-30, 'second'])
    expect(relativeTime('2026-01-01T10:30:00Z', now)).toEqual([-1, 'hour'])
    expect(relativeTime('2026-01-03T12:00:00Z', now)).toEqual([2, 'day'])
  })
})
