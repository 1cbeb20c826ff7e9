import { ApiOutlined, PlusOutlined, SearchOutlined } from '@ant-design/icons'
import { Button, Input, Select } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { Link } from 'react-router'
import { useDeployments } from '@/api/deployments'
import { useModels } from '@/api/models'
import { useMayChange } from '@/api/session'
import type { Deployment, DeploymentState } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { DataTable } from '@/ui/DataTable'
import { EmptyState } from '@/ui/EmptyState'
import { Loaded, Page } from '@/ui/Page'
import { Status } from '@/ui/Status'
import { Time } from '@/ui/Time'
import { sum } from '@/ui/units'
import { useUrlState } from '@/ui/useUrlState'
import { effectiveDtypes } from './effective'

const STATES: DeploymentState[] = ['ready', 'degraded', 'starting', 'stopped', 'failed', 'deleting']

export function DeploymentList() {
  const t = useText()
  const deployments = useDeployments()
  const mayChange = useMayChange()
  return (
    <Page
      title={t.deployments.title}
      lead={t.deployments.lead}
      actions={
        <Link to="/deployments/new">
          <Button type="primary" icon={<PlusOutlined />} disabled={!mayChange}>
            {t.deployments.create}
          </Button>
        </Link>
      }
    >
      <Loaded query={deployments}>
        {(page) => (page.results.length === 0 ? <Empty /> : <DeploymentTable deployments={page.results} />)}
      </Loaded>
    </Page>
  )
}

function Empty() {
  const t = useText()
  const mayChange = useMayChange()
  const models = useModels()
  const hasModel = models.data === undefined || models.data.count > 0
  return (
    <EmptyState
      icon={<ApiOutlined />}
      title={t.deployments.emptyTitle}
      text={hasModel ? t.deployments.emptyText : t.deployments.emptyNoModel}
      action={
        <Link to={hasModel ? '/deployments/new' : '/models?import=demo'}>
          <Button type="primary" disabled={!mayChange}>
            {hasModel ? t.deployments.create : t.models.import}
          </Button>
        </Link>
      }
    />
  )
}

function DeploymentTable({ deployments }: { deployments: Deployment[] }) {
  const t = useText()
  const said = useSaid()
  const [filter, setFilter] = useUrlState('q')
  const [state, setState] = useUrlState('state')
  const shown = deployments.filter(
    (one) => one.name.toLowerCase().includes(filter.toLowerCase()) && (state === '' || one.state === state),
  )
  const columns: ColumnsType<Deployment> = [
    {
      title: t.common.name,
      sorter: (a, b) => a.name.localeCompare(b.name),
      render: (_, one) => (
        <>
          <Link to={`/deployments/${one.id}`}>{one.name}</Link>
          {one.description && <div className="muted small cell-text">{one.description}</div>}
        </>
      ),
    },
    {
      title: t.common.state,
      render: (_, one) => (
        <>
          <Status state={one.state} />
          {one.reason && <div className="muted small cell-text">{said(one.reason)}</div>}
        </>
      ),
    },
    {
      title: t.deployments.replicas,
      render: (_, one) => t.deployments.readyOf(sum(one.ready), sum(one.replicas)),
    },
    { title: t.deployments.model, render: (_, one) => one.revision?.version_label ?? '–' },
    {
      title: t.deployments.engine,
      render: (_, one) => (
        <>
          {one.revision?.engine ?? '–'}
          <div className="muted small">
            {effectiveDtypes(one.instances).join(', ') || one.revision?.dtype}
          </div>
        </>
      ),
    },
    { title: t.common.created, render: (_, one) => <Time at={one.created_at} /> },
    {
      title: t.common.actions,
      render: (_, one) => (
        <Link to={`/playground?model=${encodeURIComponent(one.name)}`}>
          <Button size="small" disabled={one.state !== 'ready' && one.state !== 'degraded'}>
            {t.deployments.chat}
          </Button>
        </Link>
      ),
    },
  ]
  return (
    <>
      <div className="filters">
        <Input
          className="filter-text"
          prefix={<SearchOutlined />}
          placeholder={t.deployments.search}
          aria-label={t.deployments.search}
          value={filter}
          allowClear
          onChange={(change) => setFilter(change.target.value)}
        />
        <Select
          className="filter-select"
          aria-label={t.common.state}
          value={state}
          onChange={setState}
          options={[
            { value: '', label: t.deployments.anyState },
            ...STATES.map((value) => ({ value, label: t.states[value] })),
          ]}
        />
        <span className="muted">{t.common.total(shown.length)}</span>
      </div>
      <DataTable columns={columns} dataSource={shown} locale={{ emptyText: t.deployments.noMatch }} />
    </>
  )
}
