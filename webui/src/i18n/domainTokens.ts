import { type Language, usePreferences } from '@/app/preferences'
import { domainTokens as en } from './en/domainTokens'
import { domainTokens as zh } from './zh/domainTokens'

const DICTIONARIES: Record<Language, typeof en> = { en, zh }

/** Texts of domain tokens; they travel with their pages: the first load of the console stays small. */
export function useDomainTokensText(): typeof en {
  return DICTIONARIES[usePreferences().language]
}
