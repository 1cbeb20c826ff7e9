import { useLineage } from '@/api/models'
import type { Lineage, LineageEdge } from '@/api/types'
import { useText } from '@/i18n'
import { Loaded } from '@/ui/Page'
import { type Placed, placeLineage } from './lineageLayout'

const BOX = { width: 190, height: 44 }
const STEP = { x: 430, y: 84 }
const MARGIN = 12

export function LineageTab({ modelId }: { modelId: string }) {
  const t = useText()
  const lineage = useLineage(modelId)
  return (
    <Loaded query={lineage} rows={4}>
      {(data) => (
        <>
          {data.edges.length === 0 && <p className="muted">{t.models.detail.lineageEmpty}</p>}
          <Graph lineage={data} />
        </>
      )}
    </Loaded>
  )
}

function Graph({ lineage }: { lineage: Lineage }) {
  const t = useText()
  const placed = placeLineage(lineage)
  const at = new Map(placed.map((one) => [one.version, one]))
  const width = MARGIN * 2 + BOX.width + STEP.x * Math.max(0, ...placed.map((one) => one.column))
  const height = MARGIN * 2 + BOX.height + STEP.y * Math.max(0, ...placed.map((one) => one.row))
  return (
    <div className="lineage">
      <svg width={width} height={height} role="img" aria-label={t.models.detail.lineageLabel}>
        <title>{t.models.detail.lineageLabel}</title>
        {lineage.edges.map((edge) => {
          const from = at.get(edge.parent)
          const to = at.get(edge.child)
          return from && to && <Edge key={edge.id} edge={edge} from={from} to={to} />
        })}
        {placed.map((one) => (
          <g key={one.version} transform={`translate(${left(one)},${top(one)})`}>
            <rect {...BOX} rx="8" className="lineage-box" />
            <text x={BOX.width / 2} y={BOX.height / 2} className="lineage-label">
              {one.label}
            </text>
          </g>
        ))}
      </svg>
    </div>
  )
}

const left = (one: Placed) => MARGIN + one.column * STEP.x
const top = (one: Placed) => MARGIN + one.row * STEP.y

function Edge({ edge, from, to }: { edge: LineageEdge; from: Placed; to: Placed }) {
  const t = useText()
  const [x1, y1] = [left(from) + BOX.width, top(from) + BOX.height / 2]
  const [x2, y2] = [left(to), top(to) + BOX.height / 2]
  const middle = (x1 + x2) / 2
  // Words stand where the line arrives: each version has that place for itself.
  const end = x2 - 10
  return (
    <g>
      <path d={`M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`} className="lineage-edge" />
      <text x={end} y={y2 - 8} className="lineage-note">
        {t.models.detail.edge[edge.kind]}
      </text>
      {Object.entries(edge.changes).map(([name, change], index) => (
        <text key={name} x={end} y={y2 + 12 + index * 14} className="lineage-note">
          {`${name} ${change.before} → ${change.after} ${change.unit}`}
        </text>
      ))}
    </g>
  )
}
