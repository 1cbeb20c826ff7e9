import { type Language, usePreferences } from '@/app/preferences'
import { quantize as en } from './en/quantize'
import { quantize as zh } from './zh/quantize'

export type QuantizeText = typeof en

const DICTIONARIES: Record<Language, QuantizeText> = { en, zh }

/** Texts of quantization; they travel with its pages. */
export function useQuantizeText(): QuantizeText {
  return DICTIONARIES[usePreferences().language]
}
