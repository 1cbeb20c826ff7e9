import { type Language, usePreferences } from '@/app/preferences'
import { type Dictionary, en } from './en'
import { translator } from './sentences'
import { zh } from './zh'
import chinese from './zh/sentences.json'

const DICTIONARIES: Record<Language, Dictionary> = { en, zh }
const SAID: Record<Language, (text: string) => string> = {
  en: (text) => text,
  zh: translator(chinese, zh.states),
}

/** Tag for Intl and for `lang`. */
export const LOCALES: Record<Language, string> = { en: 'en', zh: 'zh-CN' }

export function useText(): Dictionary {
  return DICTIONARIES[usePreferences().language]
}

export function useLocale(): string {
  return LOCALES[usePreferences().language]
}

/** What the platform said (a reason, an error, an event), in the user's language. */
export function useSaid(): (text: string) => string {
  return SAID[usePreferences().language]
}

export type { Dictionary }
