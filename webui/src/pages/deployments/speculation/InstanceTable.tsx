import { Card } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import type { InstanceSpeculation } from '@/api/speculation'
import { useSaid, useText } from '@/i18n'
import { useSpeculationText } from '@/i18n/speculation'
import { share } from '@/pages/evaluations/result/figures'
import { DataTable } from '@/ui/DataTable'
import { Status } from '@/ui/Status'
import { instanceName } from '../effective'

/** Replicas have a cache and a load each, so their figures differ. */
export function InstanceTable({ instances, window }: { instances: InstanceSpeculation[]; window: string }) {
  const t = useText()
  const text = useSpeculationText().panel
  const said = useSaid()
  const of = (one: InstanceSpeculation) => (window === 'start' ? one.since_start : one.recent)
  const number = (value: number | null | undefined, unit = '') =>
    value === null || value === undefined ? '–' : `${value.toFixed(2)}${unit}`
  const columns: ColumnsType<InstanceSpeculation> = [
    { title: t.deployments.detail.instance, render: (_, one) => <strong>{instanceName(one)}</strong> },
    {
      title: t.common.state,
      render: (_, one) => (
        <div className="cell-text">
          <Status state={one.state} />
          {one.reason && <div className="muted small">{said(one.reason)}</div>}
        </div>
      ),
    },
    { title: text.speedup, align: 'right', render: (_, one) => number(of(one)?.speedup, '×') },
    { title: text.tokensPerStep, align: 'right', render: (_, one) => number(of(one)?.tokens_per_step) },
    { title: text.acceptanceLength, align: 'right', render: (_, one) => number(of(one)?.acceptance_length) },
    { title: text.share, align: 'right', render: (_, one) => share(of(one)?.share_speculated, 0) },
    { title: text.hitRate, align: 'right', render: (_, one) => share(of(one)?.hit_rate, 0) },
  ]
  return (
    <Card size="small" title={text.instances}>
      <DataTable rowKey="instance" columns={columns} dataSource={instances} />
    </Card>
  )
}
