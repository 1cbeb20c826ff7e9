// What the figures of speculation come to: does it help just now, and if not, why.

import type { Speculation, SpeculationFigures } from '@/api/speculation'

export type Standing = 'works' | 'rests' | 'idle' | 'never' | 'off' | 'unknown' | 'noInstance'

/** works: passes of the last minute carried guesses. rests: the budget let none through. idle: nobody was answered of late, never: at all. */
export function standingOf({ speculation, recent, since_start, instances }: Speculation): Standing {
  if (speculation === 'off') return 'off'
  if (instances.length === 0) return 'noInstance'
  if (!since_start || !recent) return 'unknown'
  if (since_start.steps === 0) return 'never'
  if (recent.steps === 0) return 'idle'
  return recent.verified_steps > 0 ? 'works' : 'rests'
}

/** Accepted guesses of a request per pass, and what such a pass costs in plain ones: the two in the speed-up. */
export function costRatio(figures: SpeculationFigures): { hits: number; cost: number } | null {
  const { acceptance_length: length, speedup } = figures
  if (length === null || speedup === null || speedup <= 0) return null
  return { hits: length - 1, cost: length / speedup }
}

/** The names in `option`, as people call them; "auto" and "off" have words of their own. */
export function settingText(
  option: string,
  words: { auto: string; off: string },
  nameOf: (proposer: string) => string,
): string {
  if (option === '' || option === 'auto') return words.auto
  return option === 'off' ? words.off : option.split('+').map(nameOf).join(' + ')
}
