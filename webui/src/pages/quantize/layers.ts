// Products of layers, gathered for the chart of layers.

import type { DoneLayer } from '@/api/quantization'
import type { LayerDifference } from '@/api/types'

/** A point for each layer: the worst local error of its products, and the error of the stream after the last of them. */
export function byLayer(products: DoneLayer[]): LayerDifference[] {
  const found = new Map<number, LayerDifference>()
  for (const one of products) {
    const before = found.get(one.index)
    found.set(one.index, {
      layer: one.index,
      own_error: larger(before?.own_error ?? null, one.local_error),
      relative_error: one.accumulated_error ?? before?.relative_error ?? null,
      least_cosine: null,
      worst_token: -1,
    })
  }
  return [...found.values()].sort((a, b) => a.layer - b.layer)
}

function larger(a: number | null, b: number | null): number | null {
  if (a === null || b === null) return a ?? b
  return Math.max(a, b)
}
