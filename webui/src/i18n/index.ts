import { type Language, usePreferences } from '@/app/preferences'
import { type Dictionary, en } from './en'
import { zh } from './zh'

const DICTIONARIES: Record<Language, Dictionary> = { en, zh }

/** Tag for Intl and for `lang`. */
export const LOCALES: Record<Language, string> = { en: 'en', zh: 'zh-CN' }

export function useText(): Dictionary {
  return DICTIONARIES[usePreferences().language]
}

export function useLocale(): string {
  return LOCALES[usePreferences().language]
}

export type { Dictionary }
