import { Card } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import type { PdAdvice, PlanChoice, PlanFigure } from '@/api/planner'
import { useLocale } from '@/i18n'
import { usePlannerText } from '@/i18n/planner'
import { signed } from '@/pages/evaluations/compare/DifferenceTable'
import { figure, inUnit, latency, rangeText } from '@/pages/evaluations/result/figures'
import { DataTable } from '@/ui/DataTable'
import { formatCount } from '@/ui/units'
import { useLineText } from './lineText'
import { PlanMemoryBar } from './PlanMemoryBar'
import { BasisTag, choiceName } from './PlanView'

/** One choice in full: memory of its fullest GPU, what it is expected to do, why, and whether to take PD apart. */
export function ChoiceCard({ choice }: { choice: PlanChoice }) {
  const text = usePlannerText()
  const lineText = useLineText()
  const locale = useLocale()
  return (
    <Card size="small" title={text.choice(choiceName(choice))}>
      <div className="stack">
        <PlanMemoryBar choice={choice} />
        <p className="muted small plan-basics">{text.kvTokens(formatCount(choice.kv_tokens, locale))}</p>
        <Expected figures={choice.figures} />
        <div>
          <strong>{text.reasons}</strong>
          <ul className="plain-list">
            {choice.reasons.map((line) => (
              <li key={`${line.code} ${line.text}`} className={TONES[line.severity]}>
                {lineText(line)}
              </li>
            ))}
          </ul>
        </div>
        {choice.pd && <Pd pd={choice.pd} />}
      </div>
    </Card>
  )
}

const TONES = { info: undefined, warning: 'tone-warning', error: 'tone-error' }

function Expected({ figures }: { figures: PlanFigure[] }) {
  const text = usePlannerText()
  const columns: ColumnsType<PlanFigure> = [
    { title: text.figure, render: (_, one) => metricName(one.metric, text.metrics) },
    {
      title: text.expected,
      align: 'right',
      render: (_, one) =>
        one.value === null ? <span className="muted">{text.onlyBounds}</span> : inUnit(one.value, one.unit),
    },
    {
      title: text.range,
      render: (_, one) => rangeText(one.low, one.high, one.unit),
    },
    { title: text.basis, render: (_, one) => <BasisTag basis={one.basis} /> },
  ]
  const sources = [...new Set(figures.map((one) => one.source))]
  return (
    <div>
      <DataTable<PlanFigure> rowKey="metric" size="small" columns={columns} dataSource={figures} />
      <p className="muted small plan-basics">
        {text.source}: {sources.join(' · ')}
      </p>
    </div>
  )
}

/** "ttft_p50" → "TTFT P50" */
export function metricName(metric: string, names: Record<string, string>): string {
  const known = names[metric]
  if (known) return known
  const parts = /^(ttft|tpot|e2el|itl)_(.*)$/.exec(metric)
  return parts ? `${parts[1]?.toUpperCase()} ${parts[2]?.toUpperCase()}` : metric.replaceAll('_', ' ')
}

function Pd({ pd }: { pd: PdAdvice }) {
  const text = usePlannerText()
  const lineText = useLineText()
  return (
    <div data-testid="pd">
      <strong>{pd.advised ? text.pdYes(pd.prefill_instances, pd.decode_instances) : text.pdNo}</strong>
      {pd.advised && (
        <p className="muted plan-basics">
          {text.pdEffect(
            figure(pd.sequences_per_s),
            figure(pd.mixed_sequences_per_s),
            signed(pd.ttft_change),
            signed(pd.tpot_change),
            latency(pd.transfer_ms),
          )}
        </p>
      )}
      <ul className="plain-list">
        {pd.reasons.map((line) => (
          <li key={line.code}>{lineText(line)}</li>
        ))}
      </ul>
    </div>
  )
}
