// A quality suite from what people choose (evaluation/quality/suite.py).

export interface QualityForm {
  target: string
  name: string
  bundled: string[]
  /** Id of one of the team's texts: a business set. */
  corpus: string
  rule: string
  /** Rows of each bundled set; null: all. */
  rows: number | null
  /** Share of a set's items that must be right; null: only measured. */
  at_least: number | null
}

export const RULES = ['exact', 'contains', 'regex', 'json_schema', 'numeric']

/** Sets that come with evaluation (suites/data/manifest.json), as evaluation's own suites ask them. */
const BUNDLED: Record<string, Record<string, unknown>> = {
  business_example: { kind: 'rules', name: 'business', data: 'bundled:business_example', max_tokens: 64 },
  gsm8k: { kind: 'rules', name: 'gsm8k', data: 'bundled:gsm8k', max_tokens: 256 },
  bbh: { kind: 'choices', name: 'bbh', data: 'bundled:bbh' },
  wikitext2: { kind: 'perplexity', name: 'wikitext2', data: 'bundled:wikitext2', window: 512, windows: 20 },
}
export const BUNDLED_SETS = Object.keys(BUNDLED)
const OWN = 'own'

export const NEW_QUALITY: Omit<QualityForm, 'target'> = {
  name: '',
  bundled: ['gsm8k'],
  corpus: '',
  rule: 'exact',
  rows: 50,
  at_least: null,
}

export function toQualitySpec(values: QualityForm): Record<string, unknown> {
  const chosen: Record<string, unknown>[] = values.bundled.flatMap((name) => {
    const task = BUNDLED[name]
    if (!task) return []
    return [task.kind === 'perplexity' || values.rows === null ? task : { ...task, rows: values.rows }]
  })
  const own = values.corpus
    ? [{ kind: 'rules', name: OWN, data: `corpus:${values.corpus}`, rule: values.rule }]
    : []
  const tasks = [...chosen, ...own]
  const scored = tasks.filter((task) => task.kind !== 'perplexity')
  const gates =
    values.at_least === null
      ? []
      : scored.map((task) => ({
          kind: 'limit',
          metric: `${task.name}.accuracy`,
          at_least: (values.at_least ?? 0) / 100,
        }))
  return { tasks, gates }
}
