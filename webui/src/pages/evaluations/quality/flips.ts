import type { Sample } from '@/api/evaluationTypes'

export type SampleFilter = 'all' | 'flipped' | 'gained' | 'wrong' | 'right'

/** A sample beside the same one of the baseline, where there is one. */
export interface Judged {
  sample: Sample
  before: Sample | null
  right: boolean | null
  wasRight: boolean | null
}

/** Kinds of tasks whose samples have a figure of their own in place of right and wrong (evaluation/quality). */
const MEASURED = ['perplexity', 'consistency']
const RIGHT = 0.5

export function isJudged(kind: string): boolean {
  return !MEASURED.includes(kind)
}

/** null: there was no answer, or nothing to score. */
function isRight(sample: Sample): boolean | null {
  return sample.score === null || sample.error ? null : sample.score >= RIGHT
}

export function judged(samples: Sample[], baseline: Sample[]): Judged[] {
  const known = new Map(baseline.map((sample) => [sample.id, sample]))
  return samples.map((sample) => {
    const before = known.get(sample.id) ?? null
    return { sample, before, right: isRight(sample), wasRight: before && isRight(before) }
  })
}

export function matches({ right, wasRight }: Judged, filter: SampleFilter): boolean {
  if (filter === 'flipped') return wasRight === true && right === false
  if (filter === 'gained') return wasRight === false && right === true
  if (filter === 'wrong') return right === false
  if (filter === 'right') return right === true
  return true
}

export function counted(all: Judged[], filter: SampleFilter): number {
  return all.filter((one) => matches(one, filter)).length
}
