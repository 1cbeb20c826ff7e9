import { DiffOutlined } from '@ant-design/icons'
import { useQueries } from '@tanstack/react-query'
import { Alert, Card, Select } from 'antd'
import { Link } from 'react-router'
import { type RunDetail, runQuery, useRuns } from '@/api/evaluations'
import { useLocale } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { EmptyState } from '@/ui/EmptyState'
import { Loaded } from '@/ui/Page'
import { useUrlState } from '@/ui/useUrlState'
import { EvaluationPage } from '../EvaluationPage'
import { share } from '../result/figures'
import { unlike } from './comparability'
import { DifferenceTable } from './DifferenceTable'
import { differences, PRACTICAL } from './difference'

const CHOICES = 200

export function ComparePage() {
  const text = useEvaluationText()
  const [asked, setAsked] = useUrlState('runs')
  const chosen = asked.split(',').filter((id) => id !== '')
  return (
    <EvaluationPage title={text.compare.title} lead={text.compare.lead}>
      <RunPicker chosen={chosen} onChosen={(ids) => setAsked(ids.join(','))} />
      {chosen.length < 2 ? (
        <EmptyState icon={<DiffOutlined />} title={text.compare.empty} text={text.compare.emptyText} />
      ) : (
        <Compared ids={chosen} />
      )}
    </EvaluationPage>
  )
}

function RunPicker({ chosen, onChosen }: { chosen: string[]; onChosen: (ids: string[]) => void }) {
  const all = useEvaluationText()
  const locale = useLocale()
  const runs = useRuns({ state: 'completed', page_size: CHOICES })
  const when = new Intl.DateTimeFormat(locale, { dateStyle: 'short', timeStyle: 'short' })
  return (
    <Loaded query={runs} rows={1}>
      {({ results }) => (
        <div className="filters">
          <Select
            mode="multiple"
            className="run-picker"
            aria-label={all.compare.choose}
            placeholder={all.compare.chooseHint}
            value={chosen}
            onChange={onChosen}
            showSearch={{ optionFilterProp: 'label' }}
            options={results.map((run) => ({
              value: run.id,
              label: `${run.suite_name} · ${run.target.name} · ${when.format(new Date(run.created_at))}`,
            }))}
          />
          <span className="muted small">{all.compare.chooseHint}</span>
        </div>
      )}
    </Loaded>
  )
}

function Compared({ ids }: { ids: string[] }) {
  const runs = useQueries({ queries: ids.map(runQuery) })
  const found = runs.flatMap(({ data }) => data ?? [])
  const together = {
    data: found.length === ids.length ? found : undefined,
    error: runs.find(({ error }) => error !== null)?.error ?? null,
    refetch: () => Promise.all(runs.map((run) => run.refetch())),
  }
  return (
    <Loaded query={together}>
      {([reference, ...others]) =>
        reference && (
          <div className="stack">
            {others.map((other) => (
              <Pair key={other.id} reference={reference} other={other} />
            ))}
          </div>
        )
      }
    </Loaded>
  )
}

function Pair({ reference, other }: { reference: RunDetail; other: RunDetail }) {
  const text = useEvaluationText().compare
  const warnings = unlike(reference, other)
  const found = differences(reference.figures, other.figures)
  return (
    <Card size="small" title={<PairTitle reference={reference} other={other} />}>
      <div className="stack" data-testid="compared">
        {warnings.length > 0 && (
          <Alert
            type="warning"
            showIcon
            title={text.warnings}
            description={
              <ul className="plain-list">
                {warnings.map((code) => (
                  <li key={code}>{text.unlike[code]}</li>
                ))}
              </ul>
            }
          />
        )}
        {found.length === 0 ? <p className="muted">{text.nothing}</p> : <DifferenceTable rows={found} />}
        <p className="muted small">
          {text.threshold(share(PRACTICAL))} {text.method}
        </p>
      </div>
    </Card>
  )
}

function PairTitle({ reference, other }: { reference: RunDetail; other: RunDetail }) {
  const name = (run: RunDetail) => (
    <Link to={`/evaluations/runs/${run.id}`}>
      {run.suite_name} · {run.target.name}
      {run.revision === null ? '' : ` r${run.revision}`}
    </Link>
  )
  return (
    <span className="pair-title">
      {name(reference)} → {name(other)}
    </span>
  )
}
