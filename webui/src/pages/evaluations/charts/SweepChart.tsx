import { Fragment, type PointerEvent, useState } from 'react'
import { useEvaluationText } from '@/i18n/evaluations'
import { formatMs } from '@/ui/units'
import { figure } from '../result/figures'
import type { Sweep, SweepLevel } from '../result/sweep'
import { LevelMark } from './LevelMark'
import { linearScale, logScale, type Scale } from './scale'
import { useWidth } from './useWidth'

const LEFT = 58
const RIGHT = 14
const TOP = 14
const LATENCY = 210
const GAP = 26
const FLOW = 96
const BOTTOM = 34
const HEIGHT = TOP + LATENCY + GAP + FLOW + BOTTOM
const FLOW_TOP = TOP + LATENCY + GAP

interface Props {
  sweep: Sweep
  label: string
  selected: number | null
  onSelect: (index: number) => void
}

/** Latency of the objective, and what was done of what was offered, over one axis of rates. */
export function SweepChart({ sweep, label, selected, onSelect }: Props) {
  const text = useEvaluationText().sweep
  const [box, width] = useWidth<HTMLDivElement>()
  const [near, setNear] = useState<SweepLevel | null>(null)
  const { levels, limit, capacity } = sweep
  const x = logScale(
    [...levels.map((one) => one.rate), capacity?.low, capacity?.high],
    LEFT + 12,
    width - RIGHT - 12,
  )
  const y = logScale(
    [...levels.flatMap((one) => [one.latency, one.low, one.high]), limit],
    TOP + LATENCY - 8,
    TOP + 8,
  )
  const flow = linearScale(
    levels.flatMap((one) => [one.rate, one.done]),
    FLOW_TOP + FLOW,
    FLOW_TOP + 4,
  )
  if (!x || !flow) return <p className="muted">{text.none}</p>

  const nearest = (event: PointerEvent) => {
    const place = event.clientX - event.currentTarget.getBoundingClientRect().left
    const distance = (one: SweepLevel) => Math.abs(x.at(one.rate) - place)
    return levels.reduce((best, one) => (distance(one) < distance(best) ? one : best))
  }
  const shown = near ?? levels.find((one) => one.index === selected) ?? null
  return (
    <figure className="sweep" data-testid="sweep">
      <div ref={box}>
        <svg
          width={width}
          height={HEIGHT}
          role="img"
          aria-label={label}
          onPointerMove={(event) => setNear(nearest(event))}
          onPointerLeave={() => setNear(null)}
          onPointerDown={(event) => onSelect(nearest(event).index)}
        >
          <title>{label}</title>
          {capacity && <Interval sweep={sweep} x={x} />}
          <Axes x={x} y={y} flow={flow} width={width} axis={text.rateAxis} />
          {shown && (
            <line
              x1={x.at(shown.rate)}
              x2={x.at(shown.rate)}
              y1={TOP}
              y2={FLOW_TOP + FLOW}
              className="cursor"
            />
          )}
          {y && limit !== null && <Limit at={y.at(limit)} width={width} text={text.limit(formatMs(limit))} />}
          {y && <LatencyLine sweep={sweep} x={x} y={y} />}
          <Flow sweep={sweep} x={x} flow={flow} />
        </svg>
      </div>
      <Legend sweep={sweep} />
      <p className="sweep-readout small">{shown ? <Readout level={shown} sweep={sweep} /> : text.point}</p>
    </figure>
  )
}

function Axes(props: { x: Scale; y: Scale | null; flow: Scale; width: number; axis: string }) {
  const { x, y, flow, width, axis } = props
  const text = useEvaluationText().sweep
  return (
    <g>
      {y?.ticks.map((tick) => (
        <Fragment key={tick}>
          <line x1={LEFT} x2={width - RIGHT} y1={y.at(tick)} y2={y.at(tick)} className="grid-line" />
          <text x={LEFT - 8} y={y.at(tick) + 4} textAnchor="end" className="tick">
            {formatMs(tick)}
          </text>
        </Fragment>
      ))}
      {flow.ticks.map((tick) => (
        <Fragment key={tick}>
          <line x1={LEFT} x2={width - RIGHT} y1={flow.at(tick)} y2={flow.at(tick)} className="grid-line" />
          <text x={LEFT - 8} y={flow.at(tick) + 4} textAnchor="end" className="tick">
            {figure(tick)}
          </text>
        </Fragment>
      ))}
      <text x={LEFT} y={FLOW_TOP - 6} className="tick">
        {text.flowAxis}
      </text>
      {x.ticks.map((tick) => (
        <text key={tick} x={x.at(tick)} y={FLOW_TOP + FLOW + 15} textAnchor="middle" className="tick">
          {figure(tick)}
        </text>
      ))}
      <text x={(LEFT + width - RIGHT) / 2} y={HEIGHT - 4} textAnchor="middle" className="tick">
        {axis}
      </text>
    </g>
  )
}

function Interval({ sweep, x }: { sweep: Sweep; x: Scale }) {
  const low = sweep.capacity?.low
  if (!low) return null
  const high = sweep.capacity?.high
  const from = x.at(low)
  const to = high ? x.at(high) : from + 2
  return (
    <rect
      x={from}
      width={Math.max(2, to - from)}
      y={TOP}
      height={FLOW_TOP + FLOW - TOP}
      className="interval"
    />
  )
}

function Limit({ at, width, text }: { at: number; width: number; text: string }) {
  return (
    <g>
      <line x1={LEFT} x2={width - RIGHT} y1={at} y2={at} className="slo-line" />
      <text x={LEFT + 4} y={at - 5} className="slo-text">
        {text}
      </text>
    </g>
  )
}

function LatencyLine({ sweep, x, y }: { sweep: Sweep; x: Scale; y: Scale }) {
  const drawn = sweep.levels.filter((one) => one.latency !== null && one.latency > 0)
  const trusted = drawn.filter((one) => one.verdict !== 'invalid')
  return (
    <g>
      <polyline
        className="latency-line"
        points={trusted.map((one) => `${x.at(one.rate)},${y.at(one.latency ?? 1)}`).join(' ')}
      />
      {drawn.map((one) => (
        <g key={one.index}>
          {one.low !== null && one.high !== null && one.low > 0 && (
            <line
              x1={x.at(one.rate)}
              x2={x.at(one.rate)}
              y1={y.at(one.low)}
              y2={y.at(one.high)}
              className="whisker"
            />
          )}
          <LevelMark
            x={x.at(one.rate)}
            y={y.at(one.latency ?? 1)}
            verdict={one.verdict}
            best={one.index === sweep.best}
          />
        </g>
      ))}
      {sweep.knee && (
        <circle cx={x.at(sweep.knee.rate)} cy={y.at(sweep.knee.latency)} r="10" className="knee" />
      )}
    </g>
  )
}

/** Done against offered; on the diagonal all that came was served. */
function Flow({ sweep, x, flow }: { sweep: Sweep; x: Scale; flow: Scale }) {
  const line = (value: (one: SweepLevel) => number | null) =>
    sweep.levels
      .filter((one) => value(one) !== null)
      .map((one) => `${x.at(one.rate)},${flow.at(value(one) ?? 0)}`)
      .join(' ')
  return (
    <g>
      <polyline className="offered-line" points={line((one) => one.rate)} />
      <polyline className="done-line" points={line((one) => one.done)} />
      <polyline className="goodput-line" points={line((one) => one.goodput)} />
    </g>
  )
}

function Legend({ sweep }: { sweep: Sweep }) {
  const all = useEvaluationText()
  const text = all.sweep
  const verdicts = [...new Set(sweep.levels.map((one) => one.verdict))]
  return (
    <figcaption className="sweep-legend small">
      {verdicts.map((verdict) => (
        <span key={verdict}>
          <svg width="14" height="14" aria-hidden="true">
            <LevelMark x={7} y={7} verdict={verdict} />
          </svg>
          {all.levelVerdicts[verdict]}
        </span>
      ))}
      {sweep.best !== null && (
        <span>
          <svg width="16" height="14" aria-hidden="true">
            <LevelMark x={8} y={7} verdict="steady" best />
          </svg>
          {text.best}
        </span>
      )}
      {sweep.knee && (
        <span title={text.kneeHint}>
          <svg width="14" height="14" aria-hidden="true">
            <circle cx="7" cy="7" r="6" className="knee" />
          </svg>
          {text.knee(figure(sweep.knee.rate))}
        </span>
      )}
      {sweep.capacity?.low ? (
        <span>
          <span className="key key-interval" aria-hidden /> {text.interval}
        </span>
      ) : null}
      <span>
        <span className="key key-done" aria-hidden /> {text.done}
      </span>
      {sweep.levels.some((one) => one.goodput !== null) && (
        <span>
          <span className="key key-goodput" aria-hidden /> {text.goodput}
        </span>
      )}
      <span>
        <span className="key key-offered" aria-hidden /> {text.offered}
      </span>
    </figcaption>
  )
}

function Readout({ level, sweep }: { level: SweepLevel; sweep: Sweep }) {
  const all = useEvaluationText()
  const text = all.sweep
  const value = level.latency === null ? '–' : formatMs(level.latency)
  return (
    <>
      <strong>{text.at(figure(level.rate))}</strong> {sweep.metricName} {value} ·{' '}
      {text.counted(level.n, level.failed)} · {all.levelVerdicts[level.verdict]}
    </>
  )
}
