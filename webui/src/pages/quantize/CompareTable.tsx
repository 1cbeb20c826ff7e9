import { RocketOutlined } from '@ant-design/icons'
import { Button, Tag, Tooltip } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import type { ReactNode } from 'react'
import { Link } from 'react-router'
import type { Figures, Quantization, QuantizationTable } from '@/api/quantization'
import { useMayChange } from '@/api/session'
import { useSaid } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { figure, share } from '@/pages/evaluations/result/figures'
import { JobActions } from '@/pages/jobs/JobActions'
import { DataTable } from '@/ui/DataTable'
import { formatBytes, formatRate } from '@/ui/units'
import { beforeOf, changeText, type Measured, rangeText, toneOf } from './deltas'
import { deployPath } from './outcome'
import { VerdictCell } from './VerdictCell'
import { type Win, winsOf } from './wins'

/** The base is a row without a job. */
interface Row {
  key: string
  one: Quantization | null
  figures: Figures | null
}

interface Props {
  table: QuantizationTable
  chosen: string
  onChoose: (id: string) => void
}

/** The base and its quantized versions: what each takes, does and loses, against the base. */
export function CompareTable({ table, chosen, onChoose }: Props) {
  const text = useQuantizeText()
  const base = table.base.figures
  const wins = winsOf(table.rows)
  const rows: Row[] = [
    { key: 'base', one: null, figures: base },
    ...table.rows.map((one) => ({ key: one.id, one, figures: one.figures })),
  ]
  const column = (
    title: string,
    hint: string,
    name: Measured,
    better: 'lower' | 'higher',
    told: (value: number) => string,
    unit = '',
  ): ColumnsType<Row>[number] => ({
    title: (
      <Tooltip title={hint}>
        <span>
          {title}
          {unit && <span className="delta muted">{unit}</span>}
        </span>
      </Tooltip>
    ),
    align: 'right',
    render: (_, row) =>
      row.one ? (
        <Against
          value={row.figures?.[name] ?? null}
          before={beforeOf(row.one, table.rows, name, better)}
          better={better}
          told={told}
        />
      ) : (
        rangeText([base?.[name], ...table.rows.map((one) => one.base_figures?.[name])], told)
      ),
  })
  const columns: ColumnsType<Row> = [
    {
      title: text.scheme,
      render: (_, row) => (
        <Name row={row} label={table.base.label} wins={row.one ? (wins.get(row.one.id) ?? []) : []} />
      ),
    },
    { title: text.verdict, render: (_, row) => row.one && <VerdictCell one={row.one} /> },
    column(text.size, text.sizeHint, 'size_bytes', 'lower', formatBytes),
    column(text.memoryColumn, text.memoryHint, 'memory_bytes', 'lower', formatBytes),
    column(text.decode, text.decodeHint, 'decode_tokens_per_s', 'higher', formatRate, text.perS),
    column(text.prefill, text.prefillHint, 'prefill_tokens_per_s', 'higher', formatRate, text.perS),
    {
      title: <Tooltip title={text.perplexityHint}>{text.perplexity}</Tooltip>,
      align: 'right',
      render: (_, { figures }) => (
        <>
          {figures?.perplexity == null ? '–' : figures.perplexity.toFixed(2)}
          {figures?.perplexity_ratio != null && (
            <span className="delta muted">{figures.perplexity_ratio.toFixed(3)} ×</span>
          )}
        </>
      ),
    },
    {
      title: (
        <>
          <Tooltip title={text.topHint}>{text.top}</Tooltip>
          <Tooltip title={text.klHint}>
            <span className="delta muted">{text.kl}</span>
          </Tooltip>
        </>
      ),
      align: 'right',
      render: (_, { figures }) => (
        <>
          {share(figures?.same_top)}
          {figures?.kl != null && <span className="delta muted">{figure(figures.kl)}</span>}
        </>
      ),
    },
    {
      title: <span className="visually-hidden">{text.deploy}</span>,
      fixed: 'right',
      render: (_, { one }) => one && <Actions one={one} chosen={chosen === one.id} onChoose={onChoose} />,
    },
  ]
  return (
    <DataTable<Row>
      size="small"
      rowKey="key"
      columns={columns}
      dataSource={rows}
      data-testid="quantize-table"
      rowClassName={({ key }) => (key === chosen ? 'row-chosen' : '')}
    />
  )
}

function Name({ row, label, wins }: { row: Row; label: string; wins: Win[] }) {
  const text = useQuantizeText()
  const said = useSaid()
  if (!row.one) {
    return (
      <div className="scheme-name">
        <strong>{label}</strong>
        <div className="muted small">
          {row.figures?.dtype
            ? text.baseMeasured(row.figures.dtype, deviceName(row.figures.measured_on))
            : text.baseRow}
        </div>
      </div>
    )
  }
  const { one } = row
  return (
    <div className="scheme-name">
      <Link to={`/jobs/${one.job.id}`}>{said(one.scheme_label)}</Link>
      <div className="muted small">{one.version_label}</div>
      {wins.length > 0 && (
        <Tooltip title={text.winHint}>
          <div className="wins">
            {wins.map((win) => (
              <Tag key={win} color="cyan">
                {text.wins[win]}
              </Tag>
            ))}
          </div>
        </Tooltip>
      )}
      {one.keep.length > 0 && <div className="muted small cell-text">{text.kept(one.keep.join(', '))}</div>}
    </div>
  )
}

function deviceName(device: string | null | undefined): string {
  return device === 'cpu' || !device ? 'CPU' : device
}

/** A figure, and beneath it the change against the base. */
function Against(props: {
  value: number | null
  before: number | null
  better: 'lower' | 'higher'
  told: (value: number) => string
}): ReactNode {
  const { value, before, better, told } = props
  if (value === null) return '–'
  const change = changeText(before, value)
  return (
    <>
      {told(value)}
      {change && <span className={`delta ${toneOf(before, value, better) ?? 'muted'}`}>{change}</span>}
    </>
  )
}

function Actions(props: { one: Quantization; chosen: boolean; onChoose: (id: string) => void }) {
  const { one, chosen, onChoose } = props
  const text = useQuantizeText()
  const mayChange = useMayChange()
  const name = one.version_label || one.scheme_label
  const made = one.version !== null && (one.job.state === 'succeeded' || one.job.state === 'rejected')
  if (one.job.state === 'errored') return <JobActions job={one.job} /> // it goes on at the last finished layer
  if (!made) return null
  return (
    <span className="row-actions">
      <Link to={deployPath(one)}>
        <Button
          size="small"
          type={one.verdict === 'passed' ? 'primary' : 'default'}
          icon={<RocketOutlined />}
          aria-label={text.deployLabel(name)}
          disabled={!mayChange}
        >
          {text.deploy}
        </Button>
      </Link>
      <Button
        size="small"
        aria-pressed={chosen}
        aria-label={text.reportOf(name)}
        onClick={() => onChoose(chosen ? '' : one.id)}
      >
        {text.details}
      </Button>
    </span>
  )
}
