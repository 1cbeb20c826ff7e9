import { Tooltip } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { useEvaluationText } from '@/i18n/evaluations'
import { DataTable } from '@/ui/DataTable'
import { figureName, figureValue } from '../runs/runText'
import type { Difference } from './difference'
import { EffectBar } from './EffectBar'

const PER_PAGE = 30

export function DifferenceTable({ rows }: { rows: Difference[] }) {
  const all = useEvaluationText()
  const text = all.compare
  const reach = Math.max(
    0.05,
    ...rows
      .flatMap((row) => [row.low, row.high, row.change].map((value) => Math.abs(value ?? 0)))
      .filter(Number.isFinite),
  )
  const columns: ColumnsType<Difference> = [
    { title: text.metric, render: (_, row) => figureName(row.name, all) },
    { title: text.reference, align: 'right', render: (_, row) => figureValue(row.reference, row.unit) },
    { title: text.now, align: 'right', render: (_, row) => figureValue(row.value, row.unit) },
    { title: text.effect, align: 'right', render: (_, row) => signed(row.change) },
    {
      title: text.interval,
      render: (_, row) =>
        row.low === null || row.high === null ? (
          <span className="muted">{text.noInterval}</span>
        ) : (
          <span className="effect">
            <EffectBar row={row} reach={Math.min(reach, 1)} />
            <span className="small">{`${signed(row.low)} … ${signed(row.high)}`}</span>
          </span>
        ),
    },
    {
      title: <Tooltip title={text.pHint}>{text.p}</Tooltip>,
      align: 'right',
      render: (_, row) => pText(row.corrected),
    },
    {
      title: text.conclusion,
      render: (_, row) => (
        <span className={`conclusion conclusion-${row.conclusion}`}>{text.conclusions[row.conclusion]}</span>
      ),
    },
  ]
  return (
    <DataTable<Difference>
      rowKey="name"
      size="small"
      columns={columns}
      dataSource={rows}
      pagination={{ pageSize: PER_PAGE, hideOnSinglePage: true, showSizeChanger: false }}
    />
  )
}

export function signed(change: number | null): string {
  if (change === null) return '–'
  const percent = Number((Math.abs(change) * 100).toFixed(Math.abs(change) < 0.1 ? 1 : 0))
  return percent === 0 ? '0 %' : `${change < 0 ? '−' : '+'}${percent} %`
}

export function pText(p: number | null): string {
  if (p === null) return '–'
  return p < 0.001 ? '< 0.001' : p.toFixed(3)
}
