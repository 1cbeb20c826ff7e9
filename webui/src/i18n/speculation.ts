import { type Language, usePreferences } from '@/app/preferences'
import { speculation as en } from './en/speculation'
import { speculation as zh } from './zh/speculation'

export type SpeculationText = typeof en

const DICTIONARIES: Record<Language, SpeculationText> = { en, zh }

/** Texts of speculation; they travel with the pages that show it: the first load of the console stays small. */
export function useSpeculationText(): SpeculationText {
  return DICTIONARIES[usePreferences().language]
}
