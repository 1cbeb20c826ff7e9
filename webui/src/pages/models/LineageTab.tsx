import { useLineage } from '@/api/models'
import type { Lineage, LineageEdge } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { changeLine, changeTone } from '@/pages/quantize/deltas'
import { Loaded } from '@/ui/Page'
import { type Placed, placeLineage, rowHeight } from './lineageLayout'
import './lineage.css'

const BOX = { width: 190, height: 44 }
const STEP_X = 430
const NOTE = 14
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
  const width = MARGIN * 2 + BOX.width + STEP_X * Math.max(0, ...placed.map((one) => one.column))
  const step = rowHeight(lineage, BOX.height, NOTE)
  const height = MARGIN * 2 + step * (1 + Math.max(0, ...placed.map((one) => one.row)))
  return (
    <div className="lineage">
      <svg width={width} height={height} role="img" aria-label={t.models.detail.lineageLabel}>
        <title>{t.models.detail.lineageLabel}</title>
        {lineage.edges.map((edge) => {
          const from = at.get(edge.parent)
          const to = at.get(edge.child)
          return from && to && <EdgeLine key={edge.id} kind={edge.kind} from={from} to={to} step={step} />
        })}
        {lineage.edges.map((edge) => {
          const to = at.get(edge.child)
          return to && <EdgeNotes key={edge.id} edge={edge} to={to} step={step} />
        })}
        {placed.map((one) => (
          <g key={one.version} transform={`translate(${left(one)},${top(one, step)})`}>
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

const left = (one: Placed) => MARGIN + one.column * STEP_X
const top = (one: Placed, step: number) => MARGIN + one.row * step

/** A draft is made from nothing: it goes beside, which a broken line tells. */
function EdgeLine(props: { kind: LineageEdge['kind']; from: Placed; to: Placed; step: number }) {
  const { kind, from, to, step } = props
  const [x1, y1] = [left(from) + BOX.width, top(from, step) + BOX.height / 2]
  const [x2, y2] = [left(to), top(to, step) + BOX.height / 2]
  const middle = (x1 + x2) / 2
  const look = kind === 'draft_for' ? 'lineage-edge beside' : 'lineage-edge'
  return <path d={`M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`} className={look} />
}

/** Words stand where the line arrives: each version has that place for itself. They lie on all lines. */
function EdgeNotes({ edge, to, step }: { edge: LineageEdge; to: Placed; step: number }) {
  const t = useText()
  const words = useQuantizeText()
  const said = useSaid()
  const y2 = top(to, step) + BOX.height / 2
  const end = left(to) - 10
  return (
    <g>
      <text x={end} y={y2 - 8} className="lineage-note">
        {t.models.detail.edge[edge.kind]}
      </text>
      {Object.entries(edge.changes).map(([name, change], index) => (
        <text
          key={name}
          x={end}
          y={y2 + 12 + index * NOTE}
          className={['lineage-note', changeTone(name, change)].filter(Boolean).join(' ')}
        >
          {changeLine(name, change, words, said)}
        </text>
      ))}
    </g>
  )
}
