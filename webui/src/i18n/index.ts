import type { Locale } from 'antd/es/locale'
import enUS from 'antd/locale/en_US'
import { use } from 'react'
import { type Language, usePreferences } from '@/app/preferences'
import { type Dictionary, en } from './en'

/** What one language says: the console's own texts, the platform's sentences, and Ant Design's words. */
export interface Words {
  texts: Dictionary
  said: (text: string) => string
  locale: Locale
}

const ENGLISH: Words = { texts: en, said: (text) => text, locale: enUS }
const known: Record<Language, Words | null> = { en: ENGLISH, zh: null }
let coming: Promise<Words> | null = null

async function fetchChinese(): Promise<Words> {
  const { chinese } = await import('./chinese')
  known.zh = chinese
  return chinese
}

/** Suspends until the words of the user's language are there; all that is below it has them at once. */
export function useWords(): Words {
  const words = known[usePreferences().language]
  if (words) return words
  coming ??= fetchChinese()
  return use(coming)
}

/** Tag for Intl and for `lang`. */
export const LOCALES: Record<Language, string> = { en: 'en', zh: 'zh-CN' }

export function useText(): Dictionary {
  return useWords().texts
}

export function useLocale(): string {
  return LOCALES[usePreferences().language]
}

/** What the platform said (a reason, an error, an event), in the user's language. */
export function useSaid(): (text: string) => string {
  return useWords().said
}

export type { Dictionary }
