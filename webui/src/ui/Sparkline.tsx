import { useId } from 'react'

/** A small area chart, drawn as SVG. `points` are evenly spaced; null is a gap and stays one. */
export function Sparkline(props: {
  points: (number | null)[]
  label: string
  height?: number
  tone?: 'primary' | 'second'
}) {
  const { points, label, height = 48, tone = 'primary' } = props
  const fill = useId()
  const width = 240
  const top = Math.max(1e-9, ...points.map((value) => value ?? 0))
  const x = (index: number) => (points.length < 2 ? width / 2 : (index / (points.length - 1)) * width)
  const y = (value: number) => height - 2 - (value / top) * (height - 6)
  const color = tone === 'primary' ? 'var(--ant-color-primary)' : 'var(--second)'
  return (
    <svg
      className="sparkline"
      viewBox={`0 0 ${width} ${height}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <title>{label}</title>
      <defs>
        <linearGradient id={fill} x1="0" x2="0" y1="0" y2="1">
          <stop offset="0" stopColor={color} stopOpacity="0.32" />
          <stop offset="1" stopColor={color} stopOpacity="0.02" />
        </linearGradient>
      </defs>
      {runs(points).map(({ start, values }) => {
        const line = values
          .map((value, offset) => `${x(start + offset).toFixed(1)},${y(value).toFixed(1)}`)
          .join(' L')
        const end = start + values.length - 1
        return (
          <g key={start}>
            <path d={`M${x(start)},${height} L${line} L${x(end)},${height} Z`} fill={`url(#${fill})`} />
            <path
              d={`M${line}`}
              fill="none"
              stroke={color}
              strokeWidth="1.5"
              vectorEffect="non-scaling-stroke"
            />
          </g>
        )
      })}
    </svg>
  )
}

/** Stretches without a gap. */
export function runs(points: (number | null)[]): { start: number; values: number[] }[] {
  const found: { start: number; values: number[] }[] = []
  let open: { start: number; values: number[] } | null = null
  points.forEach((value, index) => {
    if (value === null) {
      open = null
    } else if (open) {
      open.values.push(value)
    } else {
      open = { start: index, values: [value] }
      found.push(open)
    }
  })
  return found
}
