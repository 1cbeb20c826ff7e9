// What speaks for which of several versions: only those that passed their gate compete.

import type { Quantization } from '@/api/quantization'
import { outcomeOf } from './outcome'

export type Win = 'fastest' | 'smallest' | 'closest'

const CONTESTS: [Win, 'decode_tokens_per_s' | 'memory_bytes' | 'kl', 'lower' | 'higher'][] = [
  ['fastest', 'decode_tokens_per_s', 'higher'],
  ['smallest', 'memory_bytes', 'lower'],
  ['closest', 'kl', 'lower'],
]

/** Id → what it is the best in; nothing while fewer than two have passed, or where several are alike. */
export function winsOf(rows: Quantization[]): Map<string, Win[]> {
  const passed = rows.filter((one) => outcomeOf(one) === 'passed')
  const found = new Map<string, Win[]>()
  for (const [win, figure, better] of CONTESTS) {
    const known = passed.flatMap(({ id, figures }) => {
      const value = figures?.[figure]
      return value === null || value === undefined ? [] : [{ id, value }]
    })
    known.sort((a, b) => (better === 'lower' ? a.value - b.value : b.value - a.value))
    const [first, second] = known
    if (first && second && first.value !== second.value) {
      found.set(first.id, [...(found.get(first.id) ?? []), win])
    }
  }
  return found
}
