import type { Lineage } from '@/api/types'

export interface Placed {
  version: string
  label: string
  /** 0 for versions made from nothing here; else one more than the deepest parent. */
  column: number
  row: number
}

/** So that the longest list of changes, which begins beside the middle of its box, ends above the next row's. */
export function rowHeight({ edges }: Lineage, box: number, line: number): number {
  const most = Math.max(0, ...edges.map(({ changes }) => Object.keys(changes).length))
  return Math.max(box + 40, box / 2 + line * (most + 2))
}

/** Columns by the longest path from an origin, rows in order of appearance. A cycle, which no job makes, ends at its first node. */
export function placeLineage({ nodes, edges }: Lineage): Placed[] {
  const parents = new Map<string, string[]>()
  for (const edge of edges) parents.set(edge.child, [...(parents.get(edge.child) ?? []), edge.parent])
  const depths = new Map<string, number>()
  const depth = (version: string, path: ReadonlySet<string>): number => {
    const known = depths.get(version)
    if (known !== undefined) return known
    const before = (parents.get(version) ?? []).filter((parent) => !path.has(parent))
    const found =
      before.length === 0
        ? 0
        : 1 + Math.max(...before.map((parent) => depth(parent, new Set([...path, version]))))
    depths.set(version, found)
    return found
  }
  const rows = new Map<number, number>()
  return nodes.map(({ version, label }) => {
    const column = depth(version, new Set())
    const row = rows.get(column) ?? 0
    rows.set(column, row + 1)
    return { version, label, column, row }
  })
}
