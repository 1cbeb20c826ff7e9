import { Button, Popconfirm, Progress, Space } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { useSearchParams } from 'react-router'
import { useRestartInstance } from '@/api/deployments'
import { useMayChange } from '@/api/session'
import type { Deployment, Instance } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { useDiagnosisText } from '@/i18n/diagnosis'
import { DataTable } from '@/ui/DataTable'
import { Status } from '@/ui/Status'
import { Time } from '@/ui/Time'
import { percent } from '@/ui/units'
import { useAct } from '@/ui/useAct'
import { useUrlState } from '@/ui/useUrlState'
import { DiagnoseDrawer } from '../diagnose/DiagnoseDrawer'
import { instanceName } from '../effective'
import { InstanceFacts } from './InstanceFacts'

export function InstancesTab({ deployment }: { deployment: Deployment }) {
  const t = useText()
  const [diagnosed, setDiagnosed] = useUrlState('diagnose')
  const columns: ColumnsType<Instance> = [
    {
      title: t.deployments.detail.instance,
      render: (_, instance) => <strong>{instanceName(instance)}</strong>,
    },
    { title: t.common.state, render: (_, instance) => <StateCell instance={instance} /> },
    { title: t.deployments.detail.node, render: (_, instance) => instance.node ?? '–' },
    {
      title: t.deployments.dtype,
      render: (_, { facts }) => (typeof facts.dtype === 'string' ? facts.dtype : '–'),
    },
    { title: t.deployments.detail.revision, dataIndex: 'revision_number', align: 'right' },
    { title: t.deployments.detail.restarts, dataIndex: 'restarts', align: 'right' },
    {
      title: t.deployments.detail.since,
      render: (_, instance) => <Time at={instance.ready_at} absent="–" />,
    },
    {
      title: t.common.actions,
      render: (_, instance) => (
        <InstanceActions instance={instance} onDiagnose={() => setDiagnosed(instance.id)} />
      ),
    },
  ]
  return (
    <>
      <DataTable
        columns={columns}
        dataSource={deployment.instances}
        locale={{ emptyText: t.deployments.detail.noInstances }}
        expandable={{ expandedRowRender: (instance) => <InstanceFacts instance={instance} /> }}
      />
      <DiagnoseDrawer
        deployment={deployment.name}
        instance={deployment.instances.find((one) => one.id === diagnosed)}
        onClose={() => setDiagnosed('')}
      />
    </>
  )
}

function StateCell({ instance }: { instance: Instance }) {
  const t = useText()
  const said = useSaid()
  const loading = instance.state === 'starting' && instance.progress > 0
  return (
    <div>
      <Status state={instance.state} />
      {instance.reason && <div className="muted small cell-text">{said(instance.reason)}</div>}
      {loading && (
        <Progress
          size="small"
          percent={percent(instance.progress)}
          aria-label={t.deployments.detail.starting(percent(instance.progress))}
        />
      )}
      {instance.next_start_at && (
        <div className="muted small">
          {t.deployments.detail.nextStart}: <Time at={instance.next_start_at} />
        </div>
      )}
    </div>
  )
}

function InstanceActions({ instance, onDiagnose }: { instance: Instance; onDiagnose: () => void }) {
  const t = useText()
  const diagnosis = useDiagnosisText()
  const act = useAct()
  const mayChange = useMayChange()
  const restart = useRestartInstance()
  const [, setParams] = useSearchParams()
  const name = instanceName(instance)
  return (
    <Space>
      <Button size="small" onClick={() => setParams({ tab: 'logs', instance: instance.id })}>
        {t.deployments.detail.viewLog}
      </Button>
      <Button size="small" disabled={!mayChange || instance.state !== 'ready'} onClick={onDiagnose}>
        {diagnosis.open}
      </Button>
      <Popconfirm
        title={`${t.deployments.detail.restart}: ${name}`}
        description={<div className="confirm-text">{t.deployments.detail.restartEffect(name)}</div>}
        okText={t.deployments.detail.restart}
        cancelText={t.common.cancel}
        onConfirm={() => restart.mutate(instance.id, { onError: act.failed })}
      >
        <Button size="small" disabled={!mayChange} loading={restart.isPending}>
          {t.deployments.detail.restart}
        </Button>
      </Popconfirm>
    </Space>
  )
}
