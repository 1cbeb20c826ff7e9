import type { EvaluationText } from '@/i18n/evaluations'

const LEVEL = /^level (\d+), (?:([\d.e+-]+) requests\/s|load): (\d+) of (\d+) requests, (.*)$/

/** What a load test says of its progress (evaluation/runner), in the reader's language; else as it came. */
export function progressText(said: string, text: EvaluationText, list: (parts: string[]) => string): string {
  const found = LEVEL.exec(said)
  if (!found) return said
  const [, level = '', rate, done = '', wanted = '', why = ''] = found
  const at = rate === undefined ? text.form.loads.concurrency : text.progress.rate(rate)
  const reasons = why.split(', ').map((code) => {
    const verdict = text.levelVerdicts[code as keyof EvaluationText['levelVerdicts']]
    return verdict ?? text.levels.reasons[code] ?? code
  })
  return text.progress.level(level, at ?? '', done, wanted, list(reasons))
}
