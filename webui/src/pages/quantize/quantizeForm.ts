// What the form of a quantization holds, and what it asks of the platform.

import type { Calibration, QuantizeInput, Scheme, SchemeChoice } from '@/api/quantization'
import type { Node } from '@/api/types'

export interface QuantizeForm {
  version: string | undefined
  device: string
  tp: number
  schemes: string[]
  source: Calibration['source']
  corpus: string
  samples: number
  tokens: number
  /** By scheme: only what was changed. */
  options: Record<string, Record<string, unknown>>
  /** By scheme; empty: the scheme's own limit, or none. */
  gates: Record<string, Record<string, number | null>>
}

export const NEW_FORM: Omit<QuantizeForm, 'version' | 'device'> = {
  tp: 1,
  schemes: [],
  source: 'builtin',
  corpus: '',
  samples: 128,
  tokens: 512,
  options: {},
  gates: {},
}

/** Options that the form asks once for all schemes, or in a place of their own. */
export const ASKED_ELSEWHERE = ['samples', 'tokens']

/** Devices that a version can be made for; the processor first, then what the nodes have. */
export function devicesOf(schemes: Scheme[]): { value: string; label: string }[] {
  return (schemes[0]?.support ?? []).map((one) => ({ value: one.device, label: one.device_name }))
}

/** The GPU that a node has, else the CPU. */
export function deviceOf(schemes: Scheme[], nodes: Pick<Node, 'gpus'>[]): string {
  const [processor, gpu] = devicesOf(schemes)
  return (nodes.some(({ gpus }) => gpus.length > 0) ? gpu?.value : undefined) ?? processor?.value ?? 'cpu'
}

/** Without what is empty: the optimizer's own defaults hold there. */
export function choiceOf(scheme: Scheme, values: QuantizeForm): SchemeChoice {
  const known = Object.keys(scheme.options_schema.properties ?? {})
  const { keep, ...options } = filled(values.options[scheme.name] ?? {})
  return {
    scheme: scheme.name,
    options: Object.fromEntries(Object.entries(options).filter(([name]) => known.includes(name))),
    gate: { ...scheme.gate, ...(filled(values.gates[scheme.name] ?? {}) as Record<string, number>) },
    ...(Array.isArray(keep) ? { keep: keep.map(String) } : {}),
  }
}

/** null while a field that is needed is empty. */
export function inputOf(values: QuantizeForm, schemes: Scheme[]): QuantizeInput | null {
  const chosen = schemes.filter(({ name }) => values.schemes.includes(name))
  if (!values.version || chosen.length === 0 || !values.tp) return null
  if (!values.samples || !values.tokens) return null
  const source = chosen.some((one) => one.needs_data) ? values.source : 'builtin'
  if (source === 'corpus' && !values.corpus) return null
  return {
    schemes: chosen.map((scheme) => choiceOf(scheme, values)),
    device: values.device,
    tp: values.tp,
    calibration: {
      source,
      ...(source === 'corpus' ? { corpus: values.corpus } : {}),
      samples: values.samples,
      tokens: values.tokens,
    },
  }
}

function filled(given: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(given).filter(([, value]) => value !== undefined && value !== null && value !== ''),
  )
}
