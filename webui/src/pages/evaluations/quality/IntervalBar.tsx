import type { QualityFigure } from '@/api/evaluationTypes'
import { scoreText } from './TaskTable'

const WIDTH = 150
const HEIGHT = 22

/** Score with its interval above, the baseline's beneath, on 0…1; the dotted line is what guessing reaches. */
export function IntervalBar(props: {
  now: QualityFigure | undefined
  before: QualityFigure | undefined
  chance: number | null
}) {
  const { now, before, chance } = props
  if (!now || now.value === null) return '–'
  const told = (one: QualityFigure) =>
    one.low === null || one.high === null
      ? scoreText(one)
      : `${scoreText({ ...one, value: one.low })} … ${scoreText({ ...one, value: one.high })}`
  if (now.unit !== 'share') return <span className="small">{told(now)}</span>
  const at = (value: number) => 4 + value * (WIDTH - 8)
  const bar = (one: QualityFigure, y: number, className: string) => (
    <g className={className}>
      {one.low !== null && one.high !== null && <line x1={at(one.low)} x2={at(one.high)} y1={y} y2={y} />}
      {one.value !== null && <circle cx={at(one.value)} cy={y} r="3.5" />}
    </g>
  )
  return (
    <span className="effect">
      <svg width={WIDTH} height={HEIGHT} aria-hidden="true" className="interval-bar">
        <line x1={at(0)} x2={at(1)} y1={HEIGHT / 2} y2={HEIGHT / 2} className="interval-axis" />
        {chance !== null && (
          <line x1={at(chance)} x2={at(chance)} y1={0} y2={HEIGHT} className="interval-chance" />
        )}
        {before && bar(before, 16, 'interval-before')}
        {bar(now, 6, 'interval-now')}
      </svg>
      <span className="small">{told(now)}</span>
    </span>
  )
}
