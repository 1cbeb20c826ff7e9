import { Tooltip } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import type { LevelResult, Quantile, Summary } from '@/api/evaluationTypes'
import { useEvaluationText } from '@/i18n/evaluations'
import { DataTable } from '@/ui/DataTable'
import { failuresOf, inUnit, rangeText } from './figures'

const QUANTILES: Quantile[] = ['p50', 'p90', 'p95', 'p99']
/** As people ask for them; metrics that a later version adds follow. */
const ORDER = [
  'ttft_intended',
  'ttft',
  'ttft_actual',
  'e2el_intended',
  'e2el',
  'e2el_actual',
  'tpot',
  'itl',
  'icl',
  'send_lag',
]

type Row = Summary & { name: string }

/** Every metric of one level with its quantiles, their intervals on hover, and what failed beside them. */
export function PercentileTable({ level, definitions }: { level: LevelResult; definitions: number }) {
  const text = useEvaluationText().percentiles
  const place = (name: string) => {
    const at = ORDER.indexOf(name)
    return at < 0 ? ORDER.length : at
  }
  const rows: Row[] = Object.entries(level.metrics)
    .map(([name, summary]) => ({ ...summary, name }))
    .sort((a, b) => place(a.name) - place(b.name) || a.name.localeCompare(b.name))
  if (rows.length === 0) return <p className="muted">{text.none}</p>
  const failed = failuresOf(level)
  const columns: ColumnsType<Row> = [
    { title: text.metric, render: (_, row) => <MetricName name={row.name} /> },
    { title: text.n, align: 'right', dataIndex: 'n' },
    {
      title: <Tooltip title={text.failedHint}>{text.failed}</Tooltip>,
      align: 'right',
      render: () => <span className={failed > 0 ? 'tone-error' : undefined}>{failed}</span>,
    },
    {
      title: text.mean,
      align: 'right',
      render: (_, row) => (
        <Bounded row={row} value={row.mean} bounds={[row.low, row.high]} title={text.interval} />
      ),
    },
    ...QUANTILES.map((quantile) => ({
      title: quantile.toUpperCase(),
      align: 'right' as const,
      render: (_: unknown, row: Row) => (
        <Bounded
          row={row}
          value={row[quantile]}
          bounds={row.bounds?.[quantile]}
          title={text.intervalOf(quantile.toUpperCase())}
        />
      ),
    })),
  ]
  return (
    <>
      <DataTable<Row> rowKey="name" size="small" columns={columns} dataSource={rows} />
      <p className="muted small">{text.definitions(definitions)}</p>
    </>
  )
}

export function MetricName({ name }: { name: string }) {
  const names = useEvaluationText().percentiles.names
  const [shown, hint] = names[name] ?? [name, '']
  return hint ? (
    <Tooltip title={hint}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the definition must be reachable by keyboard */}
      <span tabIndex={0}>{shown}</span>
    </Tooltip>
  ) : (
    shown
  )
}

function Bounded(props: {
  row: Summary
  value: number | null
  bounds: [number | null, number | null] | undefined
  title: string
}) {
  const { row, value, bounds, title } = props
  const unit = row.unit === 'tokens' ? '' : row.unit // it stands with the metric's name
  const shown = inUnit(value, unit)
  if (!bounds || (bounds[0] === null && bounds[1] === null)) return shown
  return (
    <Tooltip title={title}>
      {shown}
      <div className="muted small">{rangeText(bounds[0], bounds[1], unit)}</div>
    </Tooltip>
  )
}
