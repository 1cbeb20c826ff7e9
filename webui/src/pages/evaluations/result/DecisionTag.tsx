import { CheckCircleFilled, CloseCircleFilled, QuestionCircleFilled, StopFilled } from '@ant-design/icons'
import { Tag, Tooltip } from 'antd'
import type { ReactNode } from 'react'
import type { RunVerdict } from '@/api/evaluationTypes'
import { useEvaluationText } from '@/i18n/evaluations'

const LOOKS: Record<RunVerdict, { color: string; icon: ReactNode }> = {
  pass: { color: 'success', icon: <CheckCircleFilled /> },
  fail: { color: 'error', icon: <CloseCircleFilled /> },
  undetermined: { color: 'warning', icon: <QuestionCircleFilled /> },
  invalid: { color: 'default', icon: <StopFilled /> },
}

/** Verdict as icon and word; `label` puts what was judged in front of the word. */
export function DecisionTag({ verdict, label }: { verdict: RunVerdict; label?: string }) {
  const text = useEvaluationText()
  const { color, icon } = LOOKS[verdict] ?? LOOKS.undetermined
  const word = text.verdicts[verdict] ?? verdict
  return (
    <Tag color={color} icon={icon} className="status" data-verdict={verdict}>
      {label ? `${label}: ${word}` : word}
    </Tag>
  )
}

/** The same with what the word means, for the head of a page. */
export function VerdictTag({ verdict }: { verdict: RunVerdict }) {
  const text = useEvaluationText()
  return (
    <Tooltip title={text.verdictHints[verdict]}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the hint must be reachable by keyboard */}
      <span tabIndex={0}>
        <DecisionTag verdict={verdict} />
      </span>
    </Tooltip>
  )
}
