import { Alert, Skeleton, Tabs } from 'antd'
import { lazy, Suspense } from 'react'
import { useParams } from 'react-router'
import { useDeployment } from '@/api/deployments'
import type { Deployment } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { Loaded, Page } from '@/ui/Page'
import { Status } from '@/ui/Status'
import { useUrlState } from '@/ui/useUrlState'
import { DeploymentActions } from './DeploymentActions'
import { Summary } from './Summary'
import { EndpointTab } from './tabs/EndpointTab'
import { EventsTab } from './tabs/EventsTab'
import { InstancesTab } from './tabs/InstancesTab'
import { LogsTab } from './tabs/LogsTab'
import { RevisionsTab } from './tabs/RevisionsTab'

const SpeculationTab = lazy(async () => ({
  default: (await import('./speculation/SpeculationTab')).SpeculationTab,
}))

export function DeploymentDetail() {
  const t = useText()
  const { id = '' } = useParams()
  const deployment = useDeployment(id)
  return (
    <Page
      title={deployment.data?.name ?? t.deployments.title}
      parent={{ title: t.deployments.title, to: '/deployments' }}
      beside={deployment.data && <Status state={deployment.data.state} />}
      lead={deployment.data?.description}
      actions={deployment.data && <DeploymentActions deployment={deployment.data} />}
    >
      <Loaded query={deployment}>{(data) => <Content deployment={data} />}</Loaded>
    </Page>
  )
}

function Content({ deployment }: { deployment: Deployment }) {
  const t = useText()
  const [tab, setTab] = useUrlState('tab', 'instances')
  return (
    <>
      <StateReason deployment={deployment} />
      <Summary deployment={deployment} />
      <Tabs
        activeKey={tab}
        onChange={setTab}
        destroyOnHidden
        items={[
          {
            key: 'instances',
            label: t.deployments.detail.tabOverview,
            children: <InstancesTab deployment={deployment} />,
          },
          {
            key: 'speculation',
            label: t.deployments.detail.tabSpeculation,
            children: (
              <Suspense fallback={<Skeleton active title={false} />}>
                <SpeculationTab deployment={deployment} />
              </Suspense>
            ),
          },
          {
            key: 'endpoint',
            label: t.deployments.detail.tabEndpoint,
            children: <EndpointTab deployment={deployment} />,
          },
          {
            key: 'revisions',
            label: t.deployments.detail.tabRevisions,
            children: <RevisionsTab deployment={deployment} />,
          },
          { key: 'logs', label: t.deployments.detail.tabLogs, children: <LogsTab deployment={deployment} /> },
          {
            key: 'events',
            label: t.deployments.detail.tabEvents,
            children: <EventsTab deployment={deployment} />,
          },
        ]}
      />
    </>
  )
}

/** The state's reason in full, and what to do about it. A ready deployment needs neither. */
function StateReason({ deployment }: { deployment: Deployment }) {
  const t = useText()
  const reason = useSaid()(deployment.reason)
  const { state } = deployment
  // Nothing loads yet: each node has been refused, with a reason.
  const noRoom = deployment.instances.some(
    ({ state, placement }) => state === 'pending' && (placement.rejected?.length ?? 0) > 0,
  )
  const next = t.deployments.next[noRoom && state !== 'deleting' ? 'noRoom' : state]
  if (state === 'ready') return reason ? <p className="muted">{reason}</p> : null
  const types = {
    failed: 'error',
    degraded: 'warning',
    starting: 'info',
    stopped: 'info',
    deleting: 'info',
  } as const
  return (
    <Alert
      className="notice"
      type={types[state]}
      showIcon
      title={reason || t.states[state]}
      description={next && `${t.deployments.detail.nextStep}: ${next}`}
    />
  )
}
