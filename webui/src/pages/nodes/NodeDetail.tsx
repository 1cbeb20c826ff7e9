import { Alert, Card, Descriptions } from 'antd'
import { Link, useParams } from 'react-router'
import { useDeployments } from '@/api/deployments'
import { useNode } from '@/api/operations'
import type { Node } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { DataTable } from '@/ui/DataTable'
import { Loaded, Page } from '@/ui/Page'
import { Status } from '@/ui/Status'
import { formatBytes } from '@/ui/units'
import { GpuBars, MemoryBar } from './bars'
import { NodeActions } from './NodeActions'
import { HeartbeatAge } from './NodeList'

export function NodeDetail() {
  const t = useText()
  const said = useSaid()
  const { id = '' } = useParams()
  const node = useNode(id)
  return (
    <Page
      title={node.data?.name ?? t.nodes.title}
      parent={{ title: t.nodes.title, to: '/nodes' }}
      beside={node.data && <Status state={node.data.state} />}
      lead={node.data && said(node.data.reason)}
      actions={node.data && <NodeActions node={node.data} size="middle" />}
    >
      <Loaded query={node}>
        {(data) => (
          <div className="stack">
            {t.nodes.next[data.state] && <Alert type="info" showIcon title={t.nodes.next[data.state]} />}
            <Facts node={data} />
            <Card title={t.nodes.gpus} size="small">
              <GpuBars gpus={data.gpus} />
              {data.gpus.map((gpu) => (
                <div key={gpu.index} className="muted small">
                  {`GPU ${gpu.index}: ${gpu.name} · ${gpu.uuid}`}
                </div>
              ))}
            </Card>
            <Card title={t.nodes.instances} size="small">
              <Instances node={data} />
            </Card>
          </div>
        )}
      </Loaded>
    </Page>
  )
}

function Facts({ node }: { node: Node }) {
  const t = useText()
  const items = [
    { key: 'heartbeat', label: t.nodes.heartbeat, children: <HeartbeatAge node={node} /> },
    { key: 'address', label: t.nodes.address, children: node.address },
    { key: 'backend', label: t.nodes.backend, children: node.backend },
    { key: 'cpus', label: t.nodes.cpus, children: node.cpu_count },
    { key: 'memory', label: t.nodes.memory, children: <MemoryBar node={node} /> },
    { key: 'disk', label: t.nodes.disk, children: formatBytes(node.disk_free) },
    {
      key: 'versions',
      label: t.nodes.versions,
      children: Object.entries(node.versions)
        .map(([name, version]) => `${name} ${version}`)
        .join(' · '),
    },
  ]
  return <Descriptions size="small" bordered column={{ xs: 1, lg: 2 }} items={items} />
}

function Instances({ node }: { node: Node }) {
  const t = useText()
  const deployments = useDeployments()
  // The API names a deployment by id or by served name; both lead to its page.
  const find = (deployment: string) =>
    deployments.data?.results.find((one) => one.id === deployment || one.name === deployment)
  return (
    <DataTable
      size="small"
      dataSource={node.instances}
      locale={{ emptyText: t.nodes.noInstances }}
      columns={[
        {
          title: t.deployments.title,
          render: (_, { deployment }) => {
            const found = find(deployment)
            return found ? <Link to={`/deployments/${found.id}`}>{found.name}</Link> : deployment
          },
        },
        { title: t.common.state, render: (_, { state }) => <Status state={state} /> },
      ]}
    />
  )
}
