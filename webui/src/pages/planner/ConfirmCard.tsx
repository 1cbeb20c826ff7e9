import { Alert, Button, Card } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { useState } from 'react'
import { Link } from 'react-router'
import { type TargetInput, useStartSuite } from '@/api/evaluations'
import { type KeptPlan, type Residual, useConfirmPlan } from '@/api/planner'
import { useMayChange } from '@/api/session'
import { useSaid } from '@/i18n'
import { usePlannerText } from '@/i18n/planner'
import { signed } from '@/pages/evaluations/compare/DifferenceTable'
import { TargetPicker } from '@/pages/evaluations/form/TargetPicker'
import { figure, inUnit, rangeText } from '@/pages/evaluations/result/figures'
import { DataTable } from '@/ui/DataTable'
import { metricName } from './ChoiceCard'
import { confirmingSpec } from './plannerForm'

/** A plan counts once a load test has confirmed it: starts one at the plan's peak, and shows how far off it was. */
export function ConfirmCard({ plan, choice }: { plan: KeptPlan; choice: number }) {
  const text = usePlannerText()
  const said = useSaid()
  const mayChange = useMayChange()
  const [choosing, setChoosing] = useState(false)
  const start = useStartSuite()
  const confirm = useConfirmPlan(plan.id)
  const { summary } = plan.answer
  const begin = (target: TargetInput) =>
    start.mutate(
      {
        name: `${plan.name} · ${new Date().toISOString().slice(0, 19).replace('T', ' ')}`.slice(-100),
        spec: { load: confirmingSpec(plan.request.profile, summary.peak, summary.slo) },
        target,
        seed: null,
      },
      {
        onSuccess: (run) => confirm.mutate({ run: run.id, choice }, { onSuccess: () => setChoosing(false) }),
      },
    )
  return (
    <Card
      size="small"
      title={text.confirmTitle}
      extra={
        <Button size="small" disabled={!mayChange} onClick={() => setChoosing(true)}>
          {text.confirm}
        </Button>
      }
    >
      <p className="muted run-note">{text.confirmLead(figure(summary.peak))}</p>
      {plan.run && (
        <p>
          <Link to={`/evaluations/runs/${plan.run}`}>{text.openRun}</Link>
        </p>
      )}
      {plan.reason && <Alert type="warning" showIcon title={said(plan.reason)} />}
      {plan.residuals.length > 0 && <Residuals rows={plan.residuals} />}
      {choosing && (
        <TargetPicker
          title={text.confirm}
          pending={start.isPending || confirm.isPending}
          error={start.error ?? confirm.error}
          onClose={() => setChoosing(false)}
          onChoose={begin}
        />
      )}
    </Card>
  )
}

function Residuals({ rows }: { rows: Residual[] }) {
  const text = usePlannerText()
  const columns: ColumnsType<Residual> = [
    { title: text.figure, render: (_, one) => metricName(one.metric, text.metrics) },
    {
      title: text.expected,
      align: 'right',
      render: (_, one) => (one.predicted === null ? '–' : inUnit(one.predicted, one.unit)),
    },
    { title: text.range, render: (_, one) => rangeText(one.low, one.high, one.unit) },
    { title: text.measured, align: 'right', render: (_, one) => inUnit(one.measured, one.unit) },
    { title: text.residual, align: 'right', render: (_, one) => signed(one.residual) },
    {
      title: text.inside,
      render: (_, one) => (
        <span className={one.inside ? 'tone-ok' : 'tone-error'}>
          {one.inside ? text.isInside : text.isOutside}
        </span>
      ),
    },
  ]
  return <DataTable<Residual> rowKey="metric" size="small" columns={columns} dataSource={rows} />
}
