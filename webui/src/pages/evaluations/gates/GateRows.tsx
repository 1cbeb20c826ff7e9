import { CheckCircleFilled, PauseCircleFilled, StopFilled } from '@ant-design/icons'
import { Skeleton, Switch, Tag } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { Link } from 'react-router'
import { useDeployments } from '@/api/deployments'
import { type Gate, type MoveCheck, useMoveCheck, useSaveGate } from '@/api/evaluations'
import { useModels } from '@/api/models'
import { useSaid, useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { DataTable } from '@/ui/DataTable'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { useAct } from '@/ui/useAct'
import { RowActions } from '../RowActions'
import { useMayGate } from './GatesPage'
import { type Move, moveOf } from './move'

/** Each gate with what it would say of the newest version now: what is held back, why, and what to do. */
export function GateRows({ gates, onEdit }: { gates: Gate[]; onEdit: (gate: Gate) => void }) {
  const t = useText()
  const text = useEvaluationText().gates
  const models = useModels()
  const deployments = useDeployments()
  const columns: ColumnsType<Gate> = [
    {
      title: text.gate,
      render: (_, gate) => (
        <div className="cell-text">
          {gate.name}
          <div className="muted small">{gate.suite_name}</div>
        </div>
      ),
    },
    { title: text.guards, render: (_, gate) => <Guarded gate={gate} /> },
    { title: text.asks, render: (_, gate) => <Asked gate={gate} /> },
    {
      title: text.state,
      render: (_, gate) => (
        <Checked
          gate={gate}
          move={moveOf(gate, models.data?.results ?? [], deployments.data?.results ?? [])}
        />
      ),
    },
    { title: text.enabled, render: (_, gate) => <Enabled gate={gate} /> },
    { title: t.common.actions, render: (_, gate) => <Actions gate={gate} onEdit={onEdit} /> },
  ]
  return <DataTable<Gate> columns={columns} dataSource={gates} />
}

function Guarded({ gate }: { gate: Gate }) {
  const text = useEvaluationText().gates
  return (
    <div className="cell-text">
      {gate.kind === 'alias' ? (
        <>
          <Link to={`/models/${gate.model}`}>{gate.model_name}</Link>
          <div className="muted small">{gate.alias ? text.ofAlias(gate.alias) : text.ofEachAlias}</div>
        </>
      ) : (
        <>
          <Link to={`/deployments/${gate.deployment}`}>{gate.deployment_name}</Link>
          <div className="muted small">{text.guardKinds.rollout}</div>
        </>
      )}
    </div>
  )
}

function Asked({ gate }: { gate: Gate }) {
  const text = useEvaluationText().gates
  const asked = [
    ...(gate.require_pass ? [text.asksPass] : []),
    ...(gate.forbid_regression ? [text.asksNoRegression] : []),
    ...gate.limits.map(({ figure, min, max }) =>
      [figure, min == null ? '' : `≥ ${min}`, max == null ? '' : `≤ ${max}`].filter(Boolean).join(' '),
    ),
  ]
  return (
    <div className="cell-text">
      {asked.map((one) => (
        <div key={one}>{one}</div>
      ))}
      <div className="muted small">{text.age(gate.max_age_days)}</div>
    </div>
  )
}

function Checked({ gate, move }: { gate: Gate; move: Move | null }) {
  const text = useEvaluationText().gates
  const check = useMoveCheck(gate.enabled ? (move?.body ?? null) : null)
  if (!gate.enabled) {
    return (
      <Tag icon={<PauseCircleFilled />} className="status">
        {text.off}
      </Tag>
    )
  }
  if (!move) return <span className="muted cell-text">{text.nothingToMove}</span>
  if (check.error) return <ErrorNotice error={check.error} onRetry={() => check.refetch()} />
  if (!check.data) return <Skeleton.Button active size="small" />
  return <Verdict gate={gate} check={check.data} label={move.label} />
}

export function Verdict({ gate, check, label }: { gate: Gate; check: MoveCheck; label: string }) {
  const text = useEvaluationText().gates
  const said = useSaid()
  const mine = check.refusals.filter(({ detail }) => detail.gate === gate.id)
  if (mine.length === 0) {
    return (
      <>
        <Tag color="success" icon={<CheckCircleFilled />} className="status">
          {text.open}
        </Tag>
        <div className="muted small cell-text">{text.lets(label)}</div>
      </>
    )
  }
  return (
    <div data-testid="blocked">
      <Tag color="error" icon={<StopFilled />} className="status">
        {text.blocked}
      </Tag>
      <div className="muted small cell-text">{text.holds(label)}</div>
      {mine.map(({ message, hint, detail }) => (
        <div key={message} className="cell-text refusal">
          <div>{said(message)}</div>
          <div className="muted small">
            {text.next}: {said(hint)}
          </div>
          {detail.run && (
            <Link to={`/evaluations/runs/${detail.run}`} className="small">
              {text.openRun}
            </Link>
          )}
        </div>
      ))}
    </div>
  )
}

function Enabled({ gate }: { gate: Gate }) {
  const text = useEvaluationText().gates
  const act = useAct()
  const mayGate = useMayGate()
  const save = useSaveGate(gate.id)
  return (
    <Switch
      size="small"
      checked={gate.enabled}
      loading={save.isPending}
      disabled={!mayGate}
      aria-label={text.enable(gate.name)}
      onChange={(enabled) => save.mutate({ enabled }, { onError: act.failed })}
    />
  )
}

function Actions({ gate, onEdit }: { gate: Gate; onEdit: (gate: Gate) => void }) {
  const text = useEvaluationText().gates
  const mayChange = useMayGate()
  return (
    <RowActions
      what="gates"
      id={gate.id}
      mayChange={mayChange}
      title={text.remove}
      effect={text.removeEffect}
      onEdit={() => onEdit(gate)}
    />
  )
}
