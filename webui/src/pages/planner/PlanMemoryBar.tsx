import { Tooltip } from 'antd'
import type { MemoryPart, PlanChoice } from '@/api/planner'
import { usePlannerText } from '@/i18n/planner'
import { formatBytes } from '@/ui/units'

const PARTS: MemoryPart[] = [
  'weights',
  'kv_floor',
  'kv_cache',
  'activations',
  'graphs',
  'communication',
  'overhead',
  'reserve',
]

/** Of the fullest GPU: what each part takes, and where it comes from, against what is usable. */
export function PlanMemoryBar({ choice }: { choice: PlanChoice }) {
  const text = usePlannerText()
  const lines = PARTS.flatMap((part) => choice.memory.find((line) => line.part === part) ?? [])
  const total = lines.reduce((sum, line) => sum + line.bytes, 0)
  const scale = Math.max(total, choice.usable, 1)
  const share = (bytes: number) => `${(bytes / scale) * 100}%`
  const summary = text.memory(formatBytes(total), formatBytes(choice.usable))
  const described = lines.map((line) => `${text.parts[line.part]} ${formatBytes(line.bytes)}`).join(', ')
  return (
    <div>
      <strong>{summary}</strong>
      <div className="memory-bar" role="img" aria-label={`${summary}: ${described}`}>
        {lines.map((line) => (
          <div key={line.part} className={`plan-${line.part}`} style={{ width: share(line.bytes) }} />
        ))}
        {total > choice.usable && (
          <div className="memory-limit" style={{ insetInlineStart: share(choice.usable) }} />
        )}
      </div>
      <dl className="memory-parts plan-parts">
        {lines.map((line) => (
          <div key={line.part}>
            <dt>
              <span className={`key plan-${line.part}`} aria-hidden />{' '}
              <Tooltip title={line.source}>
                {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the source must be reachable by keyboard */}
                <span tabIndex={0}>{text.parts[line.part]}</span>
              </Tooltip>
            </dt>
            <dd>{formatBytes(line.bytes)}</dd>
          </div>
        ))}
        {choice.usable > total && (
          <div>
            <dt>
              <span className="key part-free" aria-hidden /> {text.free}
            </dt>
            <dd>{formatBytes(choice.usable - total)}</dd>
          </div>
        )}
      </dl>
    </div>
  )
}
