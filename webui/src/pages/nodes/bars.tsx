import type { Gpu, Node } from '@/api/types'
import { useText } from '@/i18n'
import { Meter } from '@/ui/Meter'
import { formatBytes, percent } from '@/ui/units'

export function MemoryBar({ node }: { node: Node }) {
  const t = useText()
  const used = node.memory_total - node.memory_available
  return (
    <Meter
      label={t.nodes.memory}
      value={used}
      max={node.memory_total}
      text={t.nodes.memoryUsed(formatBytes(used), formatBytes(node.memory_total))}
    />
  )
}

export function GpuBars({ gpus }: { gpus: Gpu[] }) {
  const t = useText()
  if (gpus.length === 0) return <span className="muted">{t.nodes.noGpu}</span>
  return gpus.map((gpu) => (
    <Meter
      key={gpu.index}
      label={`GPU ${gpu.index}`}
      value={gpu.memory_used}
      max={gpu.memory_total}
      text={[
        t.nodes.memoryUsed(formatBytes(gpu.memory_used), formatBytes(gpu.memory_total)),
        gpu.utilization === null ? '' : `${percent(gpu.utilization)} %`,
      ]
        .filter(Boolean)
        .join(' · ')}
    />
  ))
}
