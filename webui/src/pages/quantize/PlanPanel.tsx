import { CloseCircleFilled, ExclamationCircleFilled, InfoCircleFilled } from '@ant-design/icons'
import { Card, Spin } from 'antd'
import type { Plan, PlanProblem, Scheme, SchemePlan } from '@/api/quantization'
import { useSaid } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { formatBytes, formatSeconds } from '@/ui/units'
import { changeText } from './deltas'
import { SupportTag } from './SchemeCards'

interface Query {
  data: Plan | undefined
  error: Error | null
  isFetching: boolean
  refetch: () => unknown
}

/** Size, memory and what stands in the way of each chosen scheme, as one chooses. */
export function PlanPanel({
  plan,
  schemes,
  ranks,
}: {
  plan: Query | null
  schemes: Scheme[]
  ranks: number
}) {
  const text = useQuantizeText()
  return (
    <Card title={text.plan} size="small" extra={plan?.isFetching && <Spin size="small" />}>
      <section
        aria-label={text.plan}
        aria-live="polite"
        aria-busy={plan?.isFetching ?? false}
        data-testid="quantize-plan"
        className="plan-scroll"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard
        tabIndex={0}
      >
        {!plan && <p className="muted">{text.planEmpty}</p>}
        <ErrorNotice error={plan?.error} onRetry={() => plan?.refetch()} />
        {plan?.data && !plan.error && (
          <>
            {plan.data.plans.map((one) => (
              <Planned
                key={one.scheme}
                plan={one}
                ranks={ranks}
                scheme={schemes.find(({ name }) => name === one.scheme)}
              />
            ))}
            {plan.data.calibration && <Problems found={plan.data.calibration.problems} />}
          </>
        )}
      </section>
    </Card>
  )
}

function Planned({ plan, scheme, ranks }: { plan: SchemePlan; scheme: Scheme | undefined; ranks: number }) {
  const text = useQuantizeText()
  const said = useSaid()
  return (
    <section className="planned" aria-label={said(scheme?.label ?? plan.scheme)}>
      <div className="row-head">
        <span>{said(scheme?.label ?? plan.scheme)}</span>
        {plan.support && <SupportTag level={plan.support.level} />}
      </div>
      <SizeBar plan={plan} />
      <p className="small planned-line">
        {ranks > 1
          ? text.perDevice(formatBytes(plan.memory_bytes), ranks)
          : text.memory(formatBytes(plan.memory_bytes))}
        {plan.seconds !== null && plan.job_memory_bytes !== null && (
          <span className="muted">
            {' '}
            {text.takes(formatSeconds(plan.seconds), formatBytes(plan.job_memory_bytes))}
          </span>
        )}
      </p>
      <Problems found={plan.problems} scheme={scheme} />
    </section>
  )
}

/** The base's files as the track, the new ones in it; where these are larger, the base's end is marked. */
function SizeBar({ plan }: { plan: SchemePlan }) {
  const text = useQuantizeText()
  const change = changeText(plan.base_bytes, plan.size_bytes)
  const told = `${formatBytes(plan.base_bytes)} → ${formatBytes(plan.size_bytes)}`
  const scale = Math.max(plan.base_bytes, plan.size_bytes, 1)
  return (
    <>
      <div className="memory-bar planned-bar" role="img" aria-label={`${text.planned}: ${told} (${change})`}>
        <div className="part-weights" style={{ width: `${(plan.size_bytes / scale) * 100}%` }} />
        {plan.size_bytes > plan.base_bytes && (
          <div className="base-mark" style={{ insetInlineStart: `${(plan.base_bytes / scale) * 100}%` }} />
        )}
      </div>
      <p className="small planned-line">
        {text.planned}: {told} <strong>{change}</strong>
      </p>
    </>
  )
}

const MARKS = {
  error: <CloseCircleFilled className="tone-error" />,
  warning: <ExclamationCircleFilled className="tone-warning" />,
  info: <InfoCircleFilled className="muted" />,
}

/** What is said of an option begins with its name: its field is further down, in a part that can be folded. */
function Problems({ found, scheme }: { found: PlanProblem[]; scheme?: Scheme | undefined }) {
  const text = useQuantizeText()
  const said = useSaid()
  if (found.length === 0) return null
  const optionOf = ({ field }: PlanProblem) =>
    scheme?.options_schema.properties?.[/\.options\.(\w+)/.exec(field)?.[1] ?? '']?.title
  return (
    <ul className="plan-problems small">
      {found.map((one) => (
        <li key={`${one.code} ${one.message}`}>
          {MARKS[one.severity] ?? MARKS.info}
          <span>
            {optionOf(one) && `${said(optionOf(one) ?? '')}: `}
            {said(one.message)}
            {one.proposal && (
              <>
                {' '}
                <strong>{text.proposal}:</strong> {said(one.proposal)}
              </>
            )}
          </span>
        </li>
      ))}
    </ul>
  )
}
