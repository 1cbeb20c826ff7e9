import { type Language, usePreferences } from '@/app/preferences'
import { diagnosis as en } from './en/diagnosis'
import { diagnosis as zh } from './zh/diagnosis'

const DICTIONARIES: Record<Language, typeof en> = { en, zh }

/** Texts of looking into instances and of comparing versions; they travel with those pages. */
export function useDiagnosisText(): typeof en {
  return DICTIONARIES[usePreferences().language]
}
