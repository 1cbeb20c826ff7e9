import { Alert, Card, Collapse, Tag } from 'antd'
import { useState } from 'react'
import type { KeptPlan, PlanAnswer, PlanChoice } from '@/api/planner'
import { useLocale } from '@/i18n'
import { usePlannerText } from '@/i18n/planner'
import { figure, objectiveName } from '@/pages/evaluations/result/figures'
import { formatBytes, formatCount } from '@/ui/units'
import { ChoiceCard } from './ChoiceCard'
import { ConfirmCard } from './ConfirmCard'
import { useLineText } from './lineText'

/** A plan: what it rests on, the choices in order of preference, what was ruled out and why, and its load test. */
export function PlanView({ plan }: { plan: KeptPlan }) {
  const text = usePlannerText()
  const lineText = useLineText()
  const { answer } = plan
  const [asked, setAsked] = useState<number | null>(null)
  const chosen = asked ?? plan.choice ?? answer.recommended ?? 0
  const choice = answer.choices[chosen]
  return (
    <div className="stack" data-testid="plan">
      {answer.findings
        .filter((line) => line.severity !== 'info')
        .map((line) => (
          <Alert
            key={line.code}
            type={line.severity === 'error' ? 'error' : 'warning'}
            showIcon
            title={lineText(line)}
          />
        ))}
      <Basics answer={answer} />
      {answer.choices.length > 0 && (
        <Card size="small" title={text.choices}>
          <ChoiceList answer={answer} chosen={chosen} onChoose={setAsked} />
        </Card>
      )}
      {choice && <ChoiceCard choice={choice} />}
      {choice && <ConfirmCard plan={plan} choice={chosen} />}
      {answer.rejected.length > 0 && (
        <Collapse
          size="small"
          items={[
            {
              key: 'rejected',
              label: text.rejected(answer.rejected.length),
              children: (
                <ul className="plain-list">
                  {answer.rejected.map((line) => (
                    <li key={`${line.code} ${line.text}`}>{lineText(line)}</li>
                  ))}
                </ul>
              ),
            },
          ]}
        />
      )}
      <p className="muted small">
        {answer.findings
          .filter((line) => line.severity === 'info')
          .map(lineText)
          .join(' ')}
      </p>
    </div>
  )
}

function Basics({ answer }: { answer: PlanAnswer }) {
  const text = usePlannerText()
  const locale = useLocale()
  const { summary } = answer
  const count = (value: number) => formatCount(Math.round(value), locale)
  const [floor] = Object.values(answer.kv_floor)
  return (
    <Card size="small">
      <p className="answer-line">
        {text.forModel(answer.model)} <span className="muted">· {answer.profile}</span>
      </p>
      <p className="muted plan-basics">
        {text.demand(figure(summary.peak), count(summary.prompt_tokens), count(summary.output_tokens))}{' '}
        {summary.slo.map(objectiveName).join(' · ')}
      </p>
      {floor && (
        <p className="plan-basics">
          {text.floor(floor.in_flight, formatBytes(floor.shared), formatBytes(floor.unshared))}
        </p>
      )}
    </Card>
  )
}

function ChoiceList(props: { answer: PlanAnswer; chosen: number; onChoose: (at: number) => void }) {
  const { answer, chosen, onChoose } = props
  const text = usePlannerText()
  return (
    <ul className="choice-list">
      {answer.choices.map((choice, at) => (
        <li key={`${choice.gpu} ${choice.tp} ${choice.pp} ${choice.scheme} ${choice.kv_dtype}`}>
          <button type="button" aria-pressed={at === chosen} onClick={() => onChoose(at)} className="choice">
            <strong>{choiceName(choice)}</strong>
            <span className="muted small">
              {choice.scheme} · {text.layout(choice.tp, choice.pp, choice.replicas)}
            </span>
            <span className="inline">
              {at === answer.recommended && <Tag color="processing">{text.recommended}</Tag>}
              <Meets choice={choice} />
              <BasisTag basis={choice.basis} />
              {choice.cost_per_hour !== null && (
                <span className="small">{text.cost(figure(choice.cost_per_hour))}</span>
              )}
            </span>
          </button>
        </li>
      ))}
    </ul>
  )
}

export function choiceName({ gpus, gpu_name }: PlanChoice): string {
  return `${gpus} × ${gpu_name.replace(/^NVIDIA (GeForce )?/, '')}`
}

function Meets({ choice }: { choice: PlanChoice }) {
  const text = usePlannerText()
  const colors = { yes: 'success', no: 'error', unknown: 'warning' } as const
  return <Tag color={colors[choice.meets]}>{text.meets[choice.meets]}</Tag>
}

export function BasisTag({ basis }: { basis: PlanChoice['basis'] }) {
  const text = usePlannerText()
  const color = basis === 'calibrated' ? 'success' : basis === 'bound_only' ? 'warning' : 'default'
  return (
    <Tag color={color} title={text.basisHints[basis]}>
      {text.bases[basis] ?? basis}
    </Tag>
  )
}
