import { ClusterOutlined } from '@ant-design/icons'
import type { ColumnsType } from 'antd/es/table'
import { Link } from 'react-router'
import { useNodes } from '@/api/operations'
import type { Node } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { CodeBlock } from '@/ui/Copy'
import { DataTable } from '@/ui/DataTable'
import { EmptyState } from '@/ui/EmptyState'
import { Loaded, Page } from '@/ui/Page'
import { Status } from '@/ui/Status'
import { formatBytes, formatSeconds } from '@/ui/units'
import { GpuBars, MemoryBar } from './bars'
import { NodeActions } from './NodeActions'

const JOIN = 'python3 manage.py node'

export function NodeList() {
  const t = useText()
  const nodes = useNodes()
  return (
    <Page title={t.nodes.title} lead={t.nodes.lead}>
      <Loaded query={nodes}>
        {(page) =>
          page.results.length === 0 ? (
            <EmptyState
              icon={<ClusterOutlined />}
              title={t.nodes.emptyTitle}
              text={t.nodes.emptyText}
              action={<CodeBlock code={JOIN} name={JOIN} />}
            />
          ) : (
            <NodeTable nodes={page.results} />
          )
        }
      </Loaded>
    </Page>
  )
}

export function HeartbeatAge({ node }: { node: Node }) {
  const t = useText()
  if (node.heartbeat_age_s === null) return <span className="muted">{t.common.never}</span>
  return <span className="nowrap">{t.nodes.ago(formatSeconds(node.heartbeat_age_s))}</span>
}

function NodeTable({ nodes }: { nodes: Node[] }) {
  const t = useText()
  const said = useSaid()
  const columns: ColumnsType<Node> = [
    {
      title: t.common.name,
      render: (_, node) => (
        <>
          <Link to={`/nodes/${node.id}`}>{node.name}</Link>
          <div className="muted small nowrap">{`${node.backend} · ${node.address}`}</div>
        </>
      ),
    },
    {
      title: t.common.state,
      render: (_, node) => (
        <>
          <Status state={node.state} />
          {node.reason && <div className="muted small cell-text">{said(node.reason)}</div>}
          <div className="muted small">
            {t.nodes.heartbeat} <HeartbeatAge node={node} />
          </div>
        </>
      ),
    },
    { title: t.nodes.cpus, dataIndex: 'cpu_count', align: 'right' },
    {
      title: `${t.nodes.memory} · ${t.nodes.gpus}`,
      render: (_, node) => (
        <div className="resources">
          <MemoryBar node={node} />
          <GpuBars gpus={node.gpus} />
        </div>
      ),
    },
    {
      title: t.nodes.disk,
      render: (_, node) => <span className="nowrap">{formatBytes(node.disk_free)}</span>,
    },
    { title: t.nodes.instances, align: 'right', render: (_, node) => node.instances.length },
    { title: t.common.actions, render: (_, node) => <NodeActions node={node} /> },
  ]
  return <DataTable columns={columns} dataSource={nodes} />
}
