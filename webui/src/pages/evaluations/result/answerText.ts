import type { ResultDoc } from '@/api/evaluationTypes'
import type { EvaluationText } from '@/i18n/evaluations'
import { figure } from './figures'
import { rateOf } from './sweep'

export function answerOf(result: ResultDoc, text: EvaluationText): string {
  const { capacity, levels } = result
  const say = text.answer
  if (capacity) {
    if (capacity.decision === 'unreachable') return say.unreachable
    if (capacity.low === null) return say.undetermined
    if (capacity.high === null) return say.atLeast(figure(capacity.low))
    return say.between(figure(capacity.low), figure(capacity.high))
  }
  const [only] = levels
  if (levels.length === 1 && only) {
    if (only.concurrency) return say.closed(only.concurrency)
    const told = only.objectives.length > 0 && only.verdict !== 'invalid' ? only.decision : 'undetermined'
    return say.held[told](figure(rateOf(only)))
  }
  return say.heldMany(levels.length)
}
