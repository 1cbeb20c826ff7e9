import './proposers.css'

/** Proposers that ship with Tursiops have a colour each; those of plugins share the last. */
const TONES = ['lookahead', 'ngram', 'draft', 'eagle3', 'medusa']

/** Class that gives a proposer's colour, as `--guess`, and its kind of line. */
export function toneOf(source: string): string {
  const known = TONES.indexOf(source)
  return `by-${known >= 0 ? known : TONES.length}`
}
