import { Tooltip } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import type { GateResult } from '@/api/evaluationTypes'
import { useSaid } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { DataTable } from '@/ui/DataTable'
import { pText } from '../compare/DifferenceTable'
import { DecisionTag } from '../result/DecisionTag'
import { figure } from '../result/figures'

/** Rules of the suite with what decided them; flips stand beside a score that may hide them. */
export function GateTable({ gates }: { gates: GateResult[] }) {
  const all = useEvaluationText()
  const text = all.quality
  const said = useSaid()
  const columns: ColumnsType<GateResult> = [
    {
      title: all.gates.gate,
      render: (_, gate) => (
        <div className="cell-text">
          {gate.name}
          <div className="muted small">
            <code>{gate.rule}</code>
          </div>
        </div>
      ),
    },
    {
      title: text.verdict,
      render: (_, gate) => (
        <>
          <DecisionTag verdict={gate.decision === 'error' ? 'invalid' : gate.decision} />
          {gate.decision !== 'pass' && gate.reason && (
            <div className="muted small cell-text">{said(gate.reason)}</div>
          )}
        </>
      ),
    },
    {
      title: text.score,
      align: 'right',
      render: (_, gate) => (
        <>
          {figure(gate.value)}
          {gate.low !== null && gate.high !== null && (
            <div className="muted small">{`${figure(gate.low)} … ${figure(gate.high)}`}</div>
          )}
        </>
      ),
    },
    { title: text.against, align: 'right', render: (_, gate) => figure(gate.baseline) },
    {
      title: <Tooltip title={text.flipsHint}>{text.flips}</Tooltip>,
      render: (_, gate) =>
        gate.right_to_wrong === null ? (
          '–'
        ) : (
          <>
            <div className={gate.right_to_wrong > 0 ? 'tone-error' : undefined}>
              {gate.right_to_wrong} {text.rightWrong}
            </div>
            <div className="muted small">
              {gate.wrong_to_right} {text.wrongRight}
            </div>
          </>
        ),
    },
    {
      title: <Tooltip title={text.pHint}>{text.p}</Tooltip>,
      align: 'right',
      render: (_, gate) => pText(gate.p_adjusted ?? gate.p),
    },
  ]
  return <DataTable<GateResult> rowKey="name" size="small" columns={columns} dataSource={gates} />
}
