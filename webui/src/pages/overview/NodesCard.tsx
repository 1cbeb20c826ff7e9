import { Card } from 'antd'
import { Link } from 'react-router'
import type { Node } from '@/api/types'
import { useText } from '@/i18n'
import { Meter } from '@/ui/Meter'
import { Status } from '@/ui/Status'
import { formatBytes, formatSeconds } from '@/ui/units'

export function NodesCard({ nodes }: { nodes: Node[] }) {
  const t = useText()
  return (
    <Card title={t.overview.nodes} extra={<Link to="/nodes">{t.overview.seeAll}</Link>}>
      {nodes.length === 0 && <p className="muted">{t.overview.noNodes}</p>}
      <ul className="rows">
        {nodes.map((node) => (
          <li key={node.id}>
            <div className="row-head">
              <Link to={`/nodes/${node.id}`}>{node.name}</Link>
              <span className="muted small">
                {t.nodes.heartbeat}{' '}
                {node.heartbeat_age_s === null
                  ? t.common.never
                  : t.nodes.ago(formatSeconds(node.heartbeat_age_s))}
              </span>
              <Status state={node.state} reason={node.reason} />
            </div>
            <Meter
              label={t.nodes.memory}
              value={node.memory_total - node.memory_available}
              max={node.memory_total}
              text={t.nodes.memoryUsed(
                formatBytes(node.memory_total - node.memory_available),
                formatBytes(node.memory_total),
              )}
            />
            {node.gpus.map((gpu) => (
              <Meter
                key={gpu.index}
                label={`GPU ${gpu.index}`}
                value={gpu.memory_used}
                max={gpu.memory_total}
                text={t.nodes.memoryUsed(formatBytes(gpu.memory_used), formatBytes(gpu.memory_total))}
              />
            ))}
          </li>
        ))}
      </ul>
    </Card>
  )
}
