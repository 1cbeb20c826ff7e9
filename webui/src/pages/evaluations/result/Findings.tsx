import { Alert, Card, Collapse } from 'antd'
import type { ReactNode } from 'react'
import type { Finding } from '@/api/evaluationTypes'
import { useSaid } from '@/i18n'
import { type EvaluationText, useEvaluationText } from '@/i18n/evaluations'
import { figure } from './figures'
import { evidenceRows, type FindingText, textOf } from './findingText'
import { type Gathered, INVALIDATING } from './gathered'

interface Props {
  found: Gathered[]
  action?: (code: string) => ReactNode
}

/** What makes the figures unusable, or leaves no answer. */
export function ValidityAlerts({ found, action }: Props) {
  const all = useEvaluationText()
  const said = useSaid()
  return found.map(({ finding, rates }) => {
    const text = textOf(finding, all.findings, said)
    const invalid = INVALIDATING.has(finding.code)
    return (
      <Alert
        key={finding.code}
        type="error"
        showIcon
        role="alert"
        data-finding={finding.code}
        title={invalid ? `${all.findingParts.invalid}: ${text.title}` : text.title}
        description={<Explained finding={finding} text={text} rates={rates} />}
        action={action?.(finding.code)}
      />
    )
  })
}

/** The others: cause, evidence and remedy of each. */
export function FindingList({ found, action }: Props) {
  const all = useEvaluationText()
  const said = useSaid()
  return (
    <ul className="rows">
      {found.map(({ finding, rates }) => {
        const text = textOf(finding, all.findings, said)
        return (
          <li key={finding.code} data-finding={finding.code}>
            <div className="row-head">
              <span>{text.title}</span>
              <span className={TONES[finding.severity]}>
                {finding.severity === 'error' && rates.length > 0
                  ? all.findingParts.ofLevels
                  : all.findingParts.severities[finding.severity]}
              </span>
            </div>
            <Explained finding={finding} text={text} rates={rates} />
            {action?.(finding.code)}
          </li>
        )
      })}
    </ul>
  )
}

const TONES = { error: 'tone-error', warning: 'tone-warning', info: 'muted' }

function Explained({ finding, text, rates }: { finding: Finding; text: FindingText; rates: number[] }) {
  const parts = useEvaluationText().findingParts
  const evidence = evidenceRows(finding.evidence, parts.evidenceNames)
  return (
    <div className="finding">
      <p>
        {text.cause} {rates.length > 0 && <span className="muted">({ratesText(rates, parts)})</span>}
      </p>
      <p>
        <strong>{parts.remedy}:</strong> {text.remedy}
      </p>
      {evidence.length > 0 && (
        <Collapse
          ghost
          size="small"
          items={[
            {
              key: 'evidence',
              label: parts.evidence,
              children: (
                <dl className="evidence small">
                  {evidence.map(({ name, value }) => (
                    <div key={name}>
                      <dt>{name}</dt>
                      <dd>{value}</dd>
                    </div>
                  ))}
                </dl>
              ),
            },
          ]}
        />
      )}
    </div>
  )
}

/** `found` without those that stand as alerts; what was said there is not said again. */
export function FindingCard({ found, any, action }: Props & { any: boolean }) {
  const text = useEvaluationText()
  if (any && found.length === 0) return null
  return (
    <Card size="small" title={text.detail.findingsTitle}>
      {any ? (
        <FindingList found={found} action={action} />
      ) : (
        <p className="muted run-note">{text.findingParts.none}</p>
      )}
    </Card>
  )
}

const MOST_RATES = 6

/** The rates in order; of many only their ends. */
function ratesText(rates: number[], parts: EvaluationText['findingParts']): string {
  const sorted = [...rates].sort((a, b) => a - b)
  if (sorted.length <= MOST_RATES) return parts.level(sorted.map(figure).join(', '))
  return parts.manyLevels(sorted.length, figure(sorted[0]), figure(sorted.at(-1)))
}
