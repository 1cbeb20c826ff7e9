import { type Difference, PRACTICAL } from './difference'

const WIDTH = 130
const HEIGHT = 18

/** The change and its interval about zero; the band is what would not matter. */
export function EffectBar({ row, reach }: { row: Difference; reach: number }) {
  const at = (value: number) =>
    WIDTH / 2 + (Math.max(-reach, Math.min(reach, value)) / reach) * (WIDTH / 2 - 4)
  const { low, high, change } = row
  if (low === null || high === null || change === null) return null
  return (
    <svg
      width={WIDTH}
      height={HEIGHT}
      aria-hidden="true"
      className={`effect-bar conclusion-${row.conclusion}`}
    >
      <rect
        x={at(-PRACTICAL)}
        width={at(PRACTICAL) - at(-PRACTICAL)}
        y={0}
        height={HEIGHT}
        className="effect-band"
      />
      <line x1={WIDTH / 2} x2={WIDTH / 2} y1={0} y2={HEIGHT} className="effect-zero" />
      <line x1={at(low)} x2={at(high)} y1={HEIGHT / 2} y2={HEIGHT / 2} className="effect-line" />
      <circle cx={at(change)} cy={HEIGHT / 2} r="3.5" className="effect-point" />
    </svg>
  )
}
