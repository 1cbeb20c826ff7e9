import { expect, it } from 'vitest'
import type { LineageEdge } from '@/api/types'
import { placeLineage, rowHeight } from './lineageLayout'

const edge = (parent: string, child: string): LineageEdge => ({
  id: `${parent}-${child}`,
  kind: 'quantized_from',
  parent,
  child,
  job: null,
  changes: {},
})
const node = (version: string) => ({ version, label: version })

it('puts a version right of everything it was made from', () => {
  const placed = placeLineage({
    nodes: [node('base'), node('int8'), node('student'), node('both')],
    edges: [edge('base', 'int8'), edge('base', 'student'), edge('student', 'both'), edge('base', 'both')],
  })
  expect(placed.map(({ version, column, row }) => [version, column, row])).toEqual([
    ['base', 0, 0],
    ['int8', 1, 0],
    ['student', 1, 1],
    ['both', 2, 0],
  ])
})

it('gives rows the height of the longest list of changes', () => {
  const one = { before: 1, after: 2, unit: '' }
  const changed = {
    ...edge('a', 'b'),
    changes: { size: one, memory: one, decode: one, prefill: one, KL: one },
  }
  expect(rowHeight({ nodes: [], edges: [edge('a', 'b')] }, 44, 14)).toBe(84)
  expect(rowHeight({ nodes: [], edges: [changed] }, 44, 14)).toBe(22 + 14 * 7)
})

it('ends on a cycle instead of looping', () => {
  const placed = placeLineage({ nodes: [node('a'), node('b')], edges: [edge('a', 'b'), edge('b', 'a')] })
  expect(new Set(placed.map((one) => one.version))).toEqual(new Set(['a', 'b']))
})
