import { expect, test } from 'vitest'
import { decades, heightOf } from './layerScale'

test('decades hold all values and leave room for none at all', () => {
  expect(decades([0.002, null, 0, 0.5])).toEqual({ low: -3, high: 0 })
  expect(decades([0.01])).toEqual({ low: -2, high: -1 })
  expect(decades([0, null])).toBeNull()
})

test('a decade is a step of the same height', () => {
  const scale = { low: -3, high: 0 }
  expect([1, 0.1, 0.01, 0.001].map((value) => heightOf(value, scale))).toEqual([
    0,
    expect.closeTo(1 / 3),
    expect.closeTo(2 / 3),
    1,
  ])
})
