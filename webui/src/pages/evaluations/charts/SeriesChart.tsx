import { useEvaluationText } from '@/i18n/evaluations'
import { runs } from '@/ui/Sparkline'
import { figure, latency } from '../result/figures'
import { linearScale } from './scale'
import { useWidth } from './useWidth'

const LEFT = 58
const RIGHT = 14
const HEIGHT = 96
const BOTTOM = 18

interface Line {
  values: (number | null)[]
  className: string
}

/** What happened within a level, second by second: a queue that builds up is a line that rises. */
export function SeriesChart({ series }: { series: Record<string, (number | null)[]> }) {
  const text = useEvaluationText().series
  const seconds = series.t_s ?? []
  if (seconds.length < 2) return null
  const lines = (names: string[]): Line[] =>
    names.flatMap((name) => (series[name] ? [{ values: series[name], className: `series-${name}` }] : []))
  return (
    <div className="series" data-testid="series">
      <Panel seconds={seconds} lines={lines(['offered', 'done'])} title={text.rate} format={figure} />
      <Panel seconds={seconds} lines={lines(['in_flight'])} title={text.inFlight} format={figure} />
      <Panel seconds={seconds} lines={lines(['ttft_ms'])} title={text.ttft} format={latency} />
    </div>
  )
}

function Panel(props: {
  seconds: (number | null)[]
  lines: Line[]
  title: string
  format: (value: number) => string
}) {
  const { seconds, lines, title, format } = props
  const text = useEvaluationText().series
  const [box, width] = useWidth<HTMLElement>(400)
  const y = linearScale(
    lines.flatMap((one) => one.values),
    HEIGHT - BOTTOM,
    8,
  )
  const last = seconds.length - 1
  const x = (at: number) => LEFT + (at / last) * (width - LEFT - RIGHT)
  if (!y) return null
  return (
    <figure ref={box} className="sweep series-panel">
      <figcaption className="small muted">{title}</figcaption>
      <svg width={width} height={HEIGHT} role="img" aria-label={title}>
        <title>{title}</title>
        {y.ticks.map((tick) => (
          <g key={tick}>
            <line x1={LEFT} x2={width - RIGHT} y1={y.at(tick)} y2={y.at(tick)} className="grid-line" />
            <text x={LEFT - 8} y={y.at(tick) + 4} textAnchor="end" className="tick">
              {format(tick)}
            </text>
          </g>
        ))}
        {lines.map(({ values, className }) =>
          runs(values).map((run) => (
            <polyline
              key={`${className} ${run.start}`}
              className={className}
              points={run.values
                .map((value, at) => `${x(run.start + at).toFixed(1)},${y.at(value).toFixed(1)}`)
                .join(' ')}
            />
          )),
        )}
        <text x={LEFT} y={HEIGHT - 4} className="tick">
          {text.start}
        </text>
        <text x={width - RIGHT} y={HEIGHT - 4} textAnchor="end" className="tick">
          {`${figure(seconds[last])} s`}
        </text>
      </svg>
    </figure>
  )
}
