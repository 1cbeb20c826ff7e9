import { Button, Card, Tooltip } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { type Key, useState } from 'react'
import {
  type DoneLayer,
  type QuantizationDetail,
  type Sensitivity,
  useQuantization,
  useRunAgain,
} from '@/api/quantization'
import { useMayChange } from '@/api/session'
import { useSaid, useText } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { figure } from '@/pages/evaluations/result/figures'
import { DataTable } from '@/ui/DataTable'
import { Loaded } from '@/ui/Page'
import { formatBytes } from '@/ui/units'
import { useAct } from '@/ui/useAct'
import { keptAs, methodText } from './kept'
import { LayerErrors } from './LayerErrors'
import { type Report, ReportFacts } from './ReportFacts'

/** Layer by layer: what was lost where, what is most sensitive, and a new run with those layers left in 16 bits. */
export function LayerReport({ id, onClose }: { id: string; onClose: () => void }) {
  const t = useText()
  const text = useQuantizeText()
  const found = useQuantization(id)
  return (
    <Card
      size="small"
      title={text.reportOf(found.data?.version_label ?? '')}
      data-testid="quantize-layers"
      extra={
        <Button size="small" onClick={onClose}>
          {t.common.close}
        </Button>
      }
    >
      <Loaded query={found}>{(data) => <Layered one={data} />}</Loaded>
    </Card>
  )
}

function Layered({ one }: { one: QuantizationDetail }) {
  const text = useQuantizeText()
  const act = useAct()
  const mayChange = useMayChange()
  const [chosen, setChosen] = useState<Key[]>([])
  const again = useRunAgain(one)
  const { layers, sensitivity } = one
  const facts = <ReportFacts report={one.report as Report} />
  if (layers.length === 0 && sensitivity.length === 0) {
    return (
      <>
        {facts}
        <p className="muted">{text.noLayers}</p>
      </>
    )
  }
  const run = () =>
    again.mutate(chosen.map(String), {
      onSuccess: () => {
        setChosen([])
        act.done(text.started(1))
      },
      onError: act.failed,
    })
  return (
    <div className="stack">
      {facts}
      <div>
        <Button
          type="primary"
          disabled={!mayChange || chosen.length === 0}
          loading={again.isPending}
          onClick={run}
        >
          {text.keep(chosen.length)}
        </Button>
        <p className="muted small planned-line">{text.keepHint}</p>
      </div>
      <LayerErrors one={one} />
      {sensitivity.length > 0 && <Ranking rows={sensitivity} chosen={chosen} onChosen={setChosen} />}
      {layers.length > 0 && <Layers rows={layers} chosen={chosen} onChosen={setChosen} />}
    </div>
  )
}

interface Choosing {
  chosen: Key[]
  onChosen: (names: Key[]) => void
}

function selection<Row>(
  { chosen, onChosen }: Choosing,
  name: (row: Row) => string,
  label: (name: string) => string,
) {
  return {
    selectedRowKeys: chosen,
    onChange: onChosen,
    preserveSelectedRowKeys: true,
    // antd's own box for all of them is drawn a second time, focusable, in a row hidden from readers.
    columnTitle: <span className="visually-hidden">{label('')}</span>,
    getCheckboxProps: (row: Row) => ({ 'aria-label': label(name(row)) }) as object,
  }
}

function Layers({ rows, ...choosing }: { rows: DoneLayer[] } & Choosing) {
  const text = useQuantizeText()
  const said = useSaid()
  const known = (name: 'loss' | 'local_error' | 'accumulated_error' | 'sqnr_db') =>
    rows.some((row) => row[name] !== null)
  const columns: ColumnsType<DoneLayer> = [
    {
      title: text.layer,
      render: (_, row) => (
        <>
          {row.name}
          {row.fallback && (
            <div className="small tone-warning">
              {text.fallback}: {said(row.fallback)}
            </div>
          )}
        </>
      ),
    },
    { title: text.keptAs, render: (_, row) => keptAs(row.scheme, text) },
    { title: text.method, render: (_, row) => methodText(row.method, text) },
    {
      title: <Tooltip title={text.lossHint}>{text.loss}</Tooltip>,
      align: 'right',
      hidden: !known('loss'),
      defaultSortOrder: 'descend',
      sorter: (a, b) => (a.loss ?? 0) - (b.loss ?? 0),
      render: (_, row) => figure(row.loss),
    },
    {
      title: <Tooltip title={text.localHint}>{text.local}</Tooltip>,
      align: 'right',
      hidden: !known('local_error'),
      sorter: (a, b) => (a.local_error ?? 0) - (b.local_error ?? 0),
      render: (_, row) => figure(row.local_error),
    },
    {
      title: <Tooltip title={text.accumulatedHint}>{text.accumulated}</Tooltip>,
      align: 'right',
      hidden: !known('accumulated_error'),
      render: (_, row) => figure(row.accumulated_error),
    },
    {
      title: <Tooltip title={text.sqnrHint}>{text.sqnr}</Tooltip>,
      align: 'right',
      hidden: !known('sqnr_db'),
      defaultSortOrder: known('loss') ? undefined : 'ascend',
      sorter: (a, b) => (a.sqnr_db ?? 0) - (b.sqnr_db ?? 0),
      render: (_, row) => (row.sqnr_db === null ? '–' : `${row.sqnr_db.toFixed(1)} dB`),
    },
  ]
  return (
    <DataTable<DoneLayer>
      size="small"
      rowKey="name"
      columns={columns}
      dataSource={rows}
      pagination={{ pageSize: 30, hideOnSinglePage: true, showSizeChanger: false }}
      rowSelection={selection(choosing, (row: DoneLayer) => row.name, text.keepRow)}
    />
  )
}

function Ranking({ rows, ...choosing }: { rows: Sensitivity[] } & Choosing) {
  const text = useQuantizeText()
  const worst = Math.max(1e-12, ...rows.map((row) => row.kl))
  const ranked = [...rows].sort((a, b) => b.kl - a.kl)
  const columns: ColumnsType<Sensitivity> = [
    { title: <Tooltip title={text.rankingHint}>{text.ranking}</Tooltip>, dataIndex: 'layer' },
    {
      title: <Tooltip title={text.klHint}>{text.kl}</Tooltip>,
      align: 'right',
      render: (_, row) => figure(row.kl),
    },
    {
      title: <span className="visually-hidden">{text.ranking}</span>,
      render: (_, row) => (
        <div className="meter-track rank-bar" aria-hidden>
          <div className="meter-fill" style={{ width: `${(Math.max(0, row.kl) / worst) * 100}%` }} />
        </div>
      ),
    },
    { title: text.size, align: 'right', render: (_, row) => formatBytes(row.bytes) },
  ]
  return (
    <DataTable<Sensitivity>
      size="small"
      rowKey="layer"
      columns={columns}
      dataSource={ranked}
      pagination={{ pageSize: 10, hideOnSinglePage: true, showSizeChanger: false }}
      rowSelection={selection(choosing, (row: Sensitivity) => row.layer, text.keepRow)}
    />
  )
}
