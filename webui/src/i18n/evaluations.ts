import { type Language, usePreferences } from '@/app/preferences'
import { evaluations as en } from './en/evaluations'
import { evaluations as zh } from './zh/evaluations'

export type EvaluationText = typeof en

const DICTIONARIES: Record<Language, EvaluationText> = { en, zh }

/** Texts of the evaluation pages. They travel with those pages: the first load of the console stays small. */
export function useEvaluationText(): EvaluationText {
  return DICTIONARIES[usePreferences().language]
}
