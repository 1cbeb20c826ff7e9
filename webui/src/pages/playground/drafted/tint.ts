// Marks in the drawn Markdown for the parts of its source that were guessed. A rehype plugin: it sees the tree that
// react-markdown draws, whose nodes tell where in the source they stand.

import { toneOf } from '@/ui/proposers'
import type { Span } from './spans'

interface Place {
  start: { offset?: number }
  end: { offset?: number }
}
export interface HastNode {
  type: string
  tagName?: string
  value?: string
  properties?: Record<string, unknown>
  children?: HastNode[]
  position?: Place
}

const ENTITY = /^&(?:#\w{1,8}|\w{1,31});/
const FENCE = /^[ \t]*(?:`{3,}|~{3,})[^\n]*\n/
const NOWHERE = -1

/**
 * Where each character of `value` stands in source[from, to): its Markdown signs are passed over. −1 for what is not
 * in the source, such as the heading of footnotes.
 */
export function align(source: string, from: number, to: number, value: string): number[] {
  const found: number[] = []
  let at = from
  for (let index = 0; index < value.length; index += 1) {
    const next = source.indexOf(value[index] ?? '', at)
    const entity = entityBefore(source, at, next < 0 ? to : next + 1, value, index)
    if (entity) {
      found.push(entity.at)
      at = entity.after
    } else if (next >= 0 && next < to) {
      found.push(next)
      at = next + 1
    } else {
      found.push(NOWHERE)
    }
  }
  return found
}

/** An entity that stands for value[index] in source[at, limit), as `&lt;` does for "<". */
function entityBefore(source: string, at: number, limit: number, value: string, index: number) {
  const start = source.indexOf('&', at)
  if (start < 0 || start >= limit) return null
  const [written] = ENTITY.exec(source.slice(start, start + 40)) ?? []
  // In code an entity is what it is written as.
  if (written === undefined || value.startsWith(written, index)) return null
  return { at: start, after: start + written.length }
}

/** `value` cut where its source changes hands; null: no guess. */
export function pieces(
  value: string,
  places: number[],
  spans: Span[],
): { text: string; source: string | null }[] {
  const cut: { text: string; source: string | null }[] = []
  let span = 0
  for (let index = 0; index < value.length; index += 1) {
    const place = places[index] ?? NOWHERE
    if (place !== NOWHERE) while (span < spans.length && (spans[span]?.end ?? 0) <= place) span += 1
    const over = spans[span]
    const source = place !== NOWHERE && over && over.start <= place ? over.source : null
    const last = cut.at(-1)
    if (last && last.source === source) last.text += value[index]
    else cut.push({ text: value[index] ?? '', source })
  }
  return cut
}

/** Plugin for react-markdown: `spans` of `source` become `<mark>`, with the proposer's name as `title`. */
export function tint({
  source,
  spans,
  nameOf,
}: {
  source: string
  spans: Span[]
  nameOf: (of: string) => string
}) {
  let cursor = 0
  const marked = (node: HastNode, from: number, to: number): HastNode[] => {
    const value = node.value ?? ''
    const places = align(source, from, to, value)
    for (const place of places) cursor = Math.max(cursor, place + 1)
    return pieces(value, places, spans).map(({ text, source: by }) =>
      by === null
        ? { type: 'text', value: text }
        : {
            type: 'element',
            tagName: 'mark',
            properties: { className: ['guessed', toneOf(by)], title: nameOf(by) },
            children: [{ type: 'text', value: text }],
          },
    )
  }
  const walk = (node: HastNode, end: number): void => {
    const to = node.position?.end.offset ?? end
    cursor = Math.max(cursor, node.position?.start.offset ?? 0)
    if (node.tagName === 'code') cursor += FENCE.exec(source.slice(cursor, to))?.[0].length ?? 0
    node.children = node.children?.flatMap((child) => {
      if (child.type !== 'text') {
        walk(child, to)
        return [child]
      }
      // Line ends between blocks are of the drawing, not of the text.
      if (!child.position && child.value?.trim() === '') return [child]
      const start = Math.max(cursor, child.position?.start.offset ?? 0)
      return marked(child, start, child.position?.end.offset ?? to)
    })
  }
  return (tree: HastNode): void => walk(tree, source.length)
}
