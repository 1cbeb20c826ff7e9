// The form's side of a revision's `options.speculation` and `draft_version`.

import type { Version } from '@/api/types'

/** Proposers that compute with a draft version; which one it is, the chosen draft tells. */
const WITH_DRAFT: readonly string[] = ['draft', 'eagle3', 'medusa']

export type Mode = 'auto' | 'off' | 'chosen'

export interface SpeculationChoice {
  mode: Mode
  /** Of `chosen`: the proposers that need no draft version. */
  names: string[]
  draft: { version: string; proposer: string } | null
}

/** The one that `auto` adds by itself where a draft version is given. */
const MODEL = 'draft'

export const AUTO: SpeculationChoice = { mode: 'auto', names: [], draft: null }

export function needsNoDraft(proposer: string): boolean {
  return !WITH_DRAFT.includes(proposer)
}

export function toChoice(option: unknown, draft: string | null): SpeculationChoice {
  if (typeof option !== 'string' || option === '' || option === 'auto') {
    return { ...AUTO, draft: draft === null ? null : { version: draft, proposer: MODEL } }
  }
  if (option === 'off') return { ...AUTO, mode: 'off' }
  const named = option.split('+')
  const proposer = named.find((name) => !needsNoDraft(name))
  return {
    mode: 'chosen',
    names: named.filter(needsNoDraft),
    draft: draft !== null && proposer !== undefined ? { version: draft, proposer } : null,
  }
}

/** A head is used only where its proposer is named. */
export function fitsAuto<Draft extends { proposer: string }>(draft: Draft | null): draft is Draft {
  return draft?.proposer === MODEL
}

/** `option` undefined: nothing is sent, which is "auto". */
export function fromChoice({ mode, names, draft }: SpeculationChoice): {
  option: string | undefined
  draft: string | null
} {
  if (mode === 'off') return { option: 'off', draft: null }
  if (mode === 'auto') return { option: undefined, draft: fitsAuto(draft) ? draft.version : null }
  const all = draft ? [...names, draft.proposer] : names
  return { option: all.length > 0 ? all.join('+') : 'off', draft: draft?.version ?? null }
}

/** How many take part; the last one can't be taken away. */
export function chosenCount({ names, draft }: SpeculationChoice): number {
  return names.length + (draft ? 1 : 0)
}

export type Unfit = 'vocabulary' | 'not_smaller' | 'tokenizer'

/** Why `other` is not among the drafts that the platform found for `target`. */
export function unfit(target: Version, other: Version): Unfit {
  if (other.shape.vocab !== target.shape.vocab) return 'vocabulary'
  return (other.shape.parameters ?? 0) >= (target.shape.parameters ?? 0) ? 'not_smaller' : 'tokenizer'
}
