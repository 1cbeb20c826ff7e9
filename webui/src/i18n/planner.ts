import { type Language, usePreferences } from '@/app/preferences'
import { planner as en } from './en/planner'
import { planner as zh } from './zh/planner'

export type PlannerText = typeof en

const DICTIONARIES: Record<Language, PlannerText> = { en, zh }

/** Texts of the planner; they travel with its page. */
export function usePlannerText(): PlannerText {
  return DICTIONARIES[usePreferences().language]
}
