import type { LevelVerdict } from '@/api/evaluationTypes'

/** A level on a chart: its shape says the verdict as well as its colour does. */
export function LevelMark(props: { x: number; y: number; verdict: LevelVerdict; best?: boolean }) {
  const { x, y, verdict, best = false } = props
  if (best) return <polygon points={star(x, y, 8)} className="mark-best" />
  if (verdict === 'steady') return <circle cx={x} cy={y} r="4.5" className="mark-steady" />
  if (verdict === 'undetermined') return <circle cx={x} cy={y} r="4" className="mark-undetermined" />
  if (verdict === 'overloaded') {
    return (
      <polygon points={`${x},${y - 5} ${x + 5},${y + 4} ${x - 5},${y + 4}`} className="mark-overloaded" />
    )
  }
  return <path d={`M${x - 4},${y - 4} l8,8 m0,-8 l-8,8`} className="mark-invalid" />
}

function star(x: number, y: number, radius: number): string {
  return Array.from({ length: 10 }, (_, at) => {
    const far = at % 2 === 0 ? radius : radius * 0.45
    const angle = (Math.PI * at) / 5 - Math.PI / 2
    return `${(x + far * Math.cos(angle)).toFixed(1)},${(y + far * Math.sin(angle)).toFixed(1)}`
  }).join(' ')
}
