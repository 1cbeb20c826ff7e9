import {
  CheckCircleFilled,
  ClockCircleFilled,
  CloseCircleFilled,
  ExclamationCircleFilled,
  QuestionCircleFilled,
  StopFilled,
  SyncOutlined,
} from '@ant-design/icons'
import { Tag, Tooltip } from 'antd'
import type { ReactNode } from 'react'
import { Link } from 'react-router'
import type { GateRule, Quantization } from '@/api/quantization'
import { useSaid } from '@/i18n'
import { type QuantizeText, useQuantizeText } from '@/i18n/quantize'
import { figure, share } from '@/pages/evaluations/result/figures'
import { type Outcome, outcomeOf } from './outcome'
import './quantize.css'

const LOOKS: Record<Outcome, { color: string; icon: ReactNode }> = {
  passed: { color: 'success', icon: <CheckCircleFilled /> },
  failed: { color: 'warning', icon: <ExclamationCircleFilled /> },
  undecided: { color: 'default', icon: <QuestionCircleFilled /> },
  errored: { color: 'error', icon: <CloseCircleFilled /> },
  cancelled: { color: 'default', icon: <StopFilled /> },
  running: { color: 'processing', icon: <SyncOutlined spin /> },
  queued: { color: 'default', icon: <ClockCircleFilled /> },
}

/** What the gate said and by which rule; work that did not end is another thing, with its cause and its job. */
export function VerdictCell({ one }: { one: Quantization }) {
  const text = useQuantizeText()
  const said = useSaid()
  const outcome = outcomeOf(one)
  const { color, icon } = LOOKS[outcome]
  const broken = one.rules.filter((rule) => !rule.passed)
  return (
    <div className="cell-text">
      <Tooltip title={text.verdictHints[outcome]}>
        <Tag
          color={color}
          icon={icon}
          className="status"
          data-outcome={outcome}
          tabIndex={text.verdictHints[outcome] ? 0 : undefined}
        >
          {text.verdicts[outcome]}
        </Tag>
      </Tooltip>
      {broken.length > 0 && (
        <ul className="verdict-rules small">
          {broken.map((rule) => (
            <li key={rule.metric}>{ruleText(rule, text)}</li>
          ))}
        </ul>
      )}
      {one.figures && (
        <Tooltip title={text.fallbacksHint}>
          <div className={one.fallbacks > 0 ? 'small tone-warning' : 'small muted'}>
            {text.fallbackCount(one.fallbacks)}
          </div>
        </Tooltip>
      )}
      {outcome === 'errored' && (
        <>
          <div className="small">{said(one.job.error.message || one.job.reason)}</div>
          <div className="small">
            <Link to={`/jobs/${one.job.id}`}>{text.log}</Link>
          </div>
        </>
      )}
    </div>
  )
}

function ruleText({ metric, value, limit, better }: GateRule, text: QuantizeText): string {
  const told = (number: number | null) => (metric.endsWith('recovery') ? share(number) : ratio(number))
  const side = better === 'lower' ? text.atMost : text.atLeast
  return text.rule(text.metrics[metric] ?? metric, told(value), side, told(limit))
}

/** Ratios are told to four digits: 1.0049 keeps a limit of 1.005. */
function ratio(value: number | null): string {
  return value !== null && value >= 0.1 && value < 100 ? String(Number(value.toFixed(4))) : figure(value)
}
