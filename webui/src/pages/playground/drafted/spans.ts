// Which parts of an answer were guessed before the model said them, and by whom.

/** Characters start … end − 1 of the answer's text: a guess of the proposer `source` that the model confirmed. */
export interface Span {
  start: number
  end: number
  source: string
}

/** A part of a delta's text; source null: drawn plainly. */
export interface Piece {
  text: string
  source: string | null
}

/** The spans of an answer of `length` characters that goes on with `pieces`. */
export function extended(spans: Span[], length: number, pieces: Piece[]): Span[] {
  let at = length
  const added: Span[] = []
  for (const { text, source } of pieces) {
    if (source !== null && text !== '') added.push({ start: at, end: at + text.length, source })
    at += text.length
  }
  return added.length > 0 ? [...spans, ...added] : spans
}

/** Proposers in order of their first guess, each with its share of `length` characters, 0…1. */
export function sharesOf(spans: Span[], length: number): { source: string; share: number }[] {
  const counts = new Map<string, number>()
  for (const { start, end, source } of spans) counts.set(source, (counts.get(source) ?? 0) + end - start)
  return [...counts].map(([source, count]) => ({ source, share: length > 0 ? count / length : 0 }))
}

/** Tokens of an answer per pass that it took: each pass says one token that nobody guessed. null: not told. */
export function tokensPerStep(tokens: number, accepted: number | undefined): number | null {
  return accepted === undefined || tokens <= accepted ? null : tokens / (tokens - accepted)
}
