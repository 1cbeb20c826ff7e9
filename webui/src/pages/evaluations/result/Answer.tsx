import { Card } from 'antd'
import type { LatencyMetric, ResultDoc } from '@/api/evaluationTypes'
import { useEvaluationText } from '@/i18n/evaluations'
import { answerOf } from './answerText'
import { METRIC_NAMES, objectiveName, share } from './figures'
import { objectivesOf } from './sweep'

const BY_DEFAULT = 0.95

/** What the run found, in one sentence, and what to do where that is not an answer. */
export function Answer({ result }: { result: ResultDoc }) {
  const text = useEvaluationText()
  const objectives = objectivesOf(result)
  const next =
    result.capacity && result.state !== 'running' ? text.answer.next[result.capacity.decision] : undefined
  return (
    <Card size="small">
      <div className="answer" data-testid="answer">
        <div>
          <p className="answer-line">
            {answerOf(result, text)}{' '}
            {result.state === 'running' && <span className="muted">({text.answer.running})</span>}
          </p>
          {objectives.length > 0 && (
            <p className="muted">
              {objectives.map(objectiveName).join(' · ')}
              {result.capacity?.low != null &&
                ` — ${text.answer.confidence(share(result.spec?.confidence ?? BY_DEFAULT))}`}
            </p>
          )}
          <Score result={result} />
          {next && <p>{next}</p>}
        </div>
      </div>
    </Card>
  )
}

/** How far the scenario's objectives are met, by its weights: beside the verdict, never instead of it. */
function Score({ result }: { result: ResultDoc }) {
  const text = useEvaluationText()
  const { value, weights, scenario, counts } = result.score
  if (value === undefined || !weights) return null
  const told = Object.entries(weights).map(
    ([name, weight]) =>
      `${METRIC_NAMES[name as LatencyMetric] ?? text.figureNames[name] ?? name} ${share(weight, 0)}`,
  )
  return (
    <p className="muted">
      {text.answer.score(text.form.scenarios[scenario ?? ''] ?? '', value, told.join(', '))}{' '}
      {!counts && text.answer.scoreVoid}
    </p>
  )
}
