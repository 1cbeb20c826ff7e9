import type { Estimate } from '@/api/types'
import { useText } from '@/i18n'
import { formatBytes } from '@/ui/units'

const PARTS = ['weights', 'kv_cache', 'activations', 'verification', 'overhead'] as const

/** The need of one replica, part by part, against what is available; a need beyond it runs over the mark. */
export function MemoryBar({ memory }: { memory: Estimate['memory'] }) {
  const t = useText()
  const text = t.deployments.estimate
  const scale = Math.max(memory.total, memory.available, 1)
  const share = (bytes: number) => `${(bytes / scale) * 100}%`
  const summary = text.needed(formatBytes(memory.total), formatBytes(memory.available))
  const parts = PARTS.filter((part) => part !== 'verification' || memory[part] > 0)
  const described = parts.map((part) => `${text[part]} ${formatBytes(memory[part])}`).join(', ')
  return (
    <div>
      <div className="muted small">{text.perReplica}</div>
      <strong>{summary}</strong>
      <div className="memory-bar" role="img" aria-label={`${summary}: ${described}`}>
        {parts.map((part) => (
          <div key={part} className={`part-${part}`} style={{ width: share(memory[part]) }} />
        ))}
        {memory.total > memory.available && (
          <div className="memory-limit" style={{ insetInlineStart: share(memory.available) }} />
        )}
      </div>
      <dl className="memory-parts">
        {parts.map((part) => (
          <div key={part}>
            <dt>
              <span className={`key part-${part}`} aria-hidden /> {text[part]}
            </dt>
            <dd>{formatBytes(memory[part])}</dd>
          </div>
        ))}
        {memory.available > memory.total && (
          <div>
            <dt>
              <span className="key part-free" aria-hidden /> {text.free}
            </dt>
            <dd>{formatBytes(memory.available - memory.total)}</dd>
          </div>
        )}
      </dl>
    </div>
  )
}
