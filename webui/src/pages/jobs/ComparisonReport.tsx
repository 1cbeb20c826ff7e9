import { Card, Descriptions, Tooltip } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import type { Comparison, Job, LayerDifference } from '@/api/types'
import { useDiagnosisText } from '@/i18n/diagnosis'
import { DataTable } from '@/ui/DataTable'
import { LayerChart } from './LayerChart'

/** What two versions differ in, layer by layer. */
export function ComparisonReport({ job }: { job: Job }) {
  const t = useDiagnosisText()
  const text = t.compare
  const found = job.report as unknown as Comparison
  const { reference, other } = found
  return (
    <Card title={text.report} size="small">
      <div className="stack" data-testid="comparison">
        <span className="muted">
          {text.against(other.label, other.dtype, reference.label, reference.dtype)} ·{' '}
          {text.tokens(found.tokens)}
        </span>
        <Figures found={found} />
        <LayerChart layers={found.layers} label={text.chart} />
        <Layers layers={found.layers} />
      </div>
    </Card>
  )
}

function Figures({ found }: { found: Comparison }) {
  const text = useDiagnosisText().compare
  const first = found.first_change >= 0 ? ` (${text.firstChange(found.first_change)})` : ''
  return (
    <Descriptions
      size="small"
      bordered
      column={{ xs: 1, md: 3 }}
      items={[
        {
          key: 'kl',
          label: <Tooltip title={text.klHint}>{text.kl}</Tooltip>,
          children: `${figure(found.kl)} ${text.nats} (${figure(found.kl_p99)})`,
        },
        {
          key: 'top',
          label: <Tooltip title={text.sameTopHint}>{text.sameTop}</Tooltip>,
          children: `${(found.same_top * 100).toFixed(1)} %${first}`,
        },
        {
          key: 'perplexity',
          label: <Tooltip title={text.perplexityHint}>{text.perplexity}</Tooltip>,
          children: found.perplexity.map(figure).join(' → '),
        },
      ]}
    />
  )
}

function Layers({ layers }: { layers: LayerDifference[] }) {
  const text = useDiagnosisText().compare
  const columns: ColumnsType<LayerDifference> = [
    { title: text.layer, dataIndex: 'layer', align: 'right' },
    {
      title: <Tooltip title={text.accumulatedHint}>{text.accumulated}</Tooltip>,
      align: 'right',
      render: (_, one) => figure(one.relative_error),
    },
    {
      title: <Tooltip title={text.ownHint}>{text.own}</Tooltip>,
      align: 'right',
      render: (_, one) => figure(one.own_error),
    },
    {
      title: <Tooltip title={text.cosineHint}>{text.cosine}</Tooltip>,
      align: 'right',
      render: (_, one) => one.least_cosine?.toFixed(6) ?? '–',
    },
    { title: text.worst, dataIndex: 'worst_token', align: 'right' },
  ]
  return <DataTable rowKey="layer" size="small" columns={columns} dataSource={layers} />
}

/** Three figures, small ones by their power of ten; a dash for what is no number. */
function figure(value: number | null): string {
  if (value === null) return '–'
  return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(2) : value.toPrecision(3)
}
