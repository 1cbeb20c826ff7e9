import { Fragment } from 'react'
import type { LayerDifference } from '@/api/types'
import { useDiagnosisText } from '@/i18n/diagnosis'
import { runs } from '@/ui/Sparkline'
import { decades, heightOf } from './layerScale'

const WIDTH = 640
const HEIGHT = 180
const LEFT = 44
const BOTTOM = 20

/** Errors by layer on a logarithmic scale; a layer without one is a gap. */
export function LayerChart({ layers, label }: { layers: LayerDifference[]; label: string }) {
  const text = useDiagnosisText().compare
  const series = [
    {
      name: text.accumulated,
      values: layers.map((one) => one.relative_error),
      color: 'var(--ant-color-primary)',
    },
    { name: text.own, values: layers.map((one) => one.own_error), color: 'var(--second)' },
  ]
  const scale = decades(series.flatMap((one) => one.values))
  if (!scale) return null
  const x = (index: number) => LEFT + ((index + 0.5) / layers.length) * (WIDTH - LEFT)
  const y = (value: number) => 4 + heightOf(value, scale) * (HEIGHT - BOTTOM - 4)
  return (
    <figure className="layer-chart">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
        <title>{label}</title>
        {powers(scale).map((power) => (
          <g key={power}>
            <line x1={LEFT} x2={WIDTH} y1={y(10 ** power)} y2={y(10 ** power)} className="grid-line" />
            <text x={LEFT - 6} y={y(10 ** power) + 4} textAnchor="end" className="tick">
              {`1e${power}`}
            </text>
          </g>
        ))}
        {layers.map((one, index) =>
          index % Math.ceil(layers.length / 12) === 0 ? (
            <text key={one.layer} x={x(index)} y={HEIGHT - 4} textAnchor="middle" className="tick">
              {one.layer}
            </text>
          ) : null,
        )}
        {series.map(({ name, values, color }) => (
          <g key={name} stroke={color} fill={color}>
            {runs(values.map((value) => (value === null || value <= 0 ? null : value))).map((run) => (
              <polyline
                key={run.start}
                fill="none"
                strokeWidth="1.5"
                points={run.values.map((value, at) => `${x(run.start + at)},${y(value)}`).join(' ')}
              />
            ))}
            {values.map((value, index) =>
              value !== null && value > 0 ? (
                <circle key={layers[index]?.layer} cx={x(index)} cy={y(value)} r="3">
                  <title>{`${text.layer} ${layers[index]?.layer}: ${name} ${value.toExponential(2)}`}</title>
                </circle>
              ) : null,
            )}
          </g>
        ))}
      </svg>
      <figcaption className="legend small">
        {series.map(({ name, color }) => (
          <Fragment key={name}>
            <span className="key" style={{ background: color }} aria-hidden /> {name}
          </Fragment>
        ))}
      </figcaption>
    </figure>
  )
}

function powers({ low, high }: { low: number; high: number }): number[] {
  return Array.from({ length: high - low + 1 }, (_, at) => low + at)
}
