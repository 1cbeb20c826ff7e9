import { Button, Popconfirm, Tag } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { useDeploymentAction, useRevisions } from '@/api/deployments'
import { useMayChange } from '@/api/session'
import type { Deployment, Revision } from '@/api/types'
import { useText } from '@/i18n'
import { DataTable } from '@/ui/DataTable'
import { Loaded } from '@/ui/Page'
import { Time } from '@/ui/Time'
import { useAct } from '@/ui/useAct'
import { differences } from './revisionDiff'

export function RevisionsTab({ deployment }: { deployment: Deployment }) {
  const revisions = useRevisions(deployment.id)
  return (
    <Loaded query={revisions}>
      {(list) => (
        <RevisionTable deployment={deployment} revisions={[...list].sort((a, b) => b.number - a.number)} />
      )}
    </Loaded>
  )
}

function RevisionTable({ deployment, revisions }: { deployment: Deployment; revisions: Revision[] }) {
  const t = useText()
  const before = (revision: Revision) => revisions[revisions.indexOf(revision) + 1]
  const columns: ColumnsType<Revision> = [
    {
      title: t.deployments.detail.revision,
      render: (_, revision) => (
        <span className="inline">
          <strong>{revision.number}</strong>
          {revision.current && <Tag color="success">{t.deployments.detail.current}</Tag>}
        </span>
      ),
    },
    { title: t.deployments.model, dataIndex: 'version_label' },
    {
      title: t.deployments.detail.changes,
      render: (_, revision) => <Changes revision={revision} before={before(revision)} />,
    },
    {
      title: t.common.created,
      render: (_, revision) => (
        <>
          <Time at={revision.created_at} />
          {revision.created_by && <div className="muted small">{t.common.by(revision.created_by)}</div>}
        </>
      ),
    },
    {
      title: t.common.actions,
      render: (_, revision) => !revision.current && <Rollback deployment={deployment} revision={revision} />,
    },
  ]
  return <DataTable columns={columns} dataSource={revisions} />
}

function Changes({ revision, before }: { revision: Revision; before: Revision | undefined }) {
  const t = useText()
  if (!before) return <span className="muted">{t.deployments.detail.firstRevision}</span>
  const changes = differences(before, revision)
  if (changes.length === 0) return <span className="muted">{t.deployments.detail.same}</span>
  return (
    <dl className="changes">
      {changes.map(({ field, from, to }) => (
        <div key={field}>
          <dt>{t.deployments.fields[field] ?? field}</dt>
          <dd>
            <del>{from}</del> → <ins>{to}</ins>
          </dd>
        </div>
      ))}
    </dl>
  )
}

function Rollback({ deployment, revision }: { deployment: Deployment; revision: Revision }) {
  const t = useText()
  const act = useAct()
  const mayChange = useMayChange()
  const action = useDeploymentAction(deployment.id)
  return (
    <Popconfirm
      title={`${t.deployments.detail.rollback}: ${t.deployments.detail.revisionOf(revision.number)}`}
      description={
        <div className="confirm-text">
          {t.deployments.detail.rollbackEffect(revision.number, deployment.instances.length)}
        </div>
      }
      okText={t.deployments.detail.rollback}
      cancelText={t.common.cancel}
      onConfirm={() => action.mutate({ act: 'rollback', revision: revision.number }, { onError: act.failed })}
    >
      <Button size="small" disabled={!mayChange} loading={action.isPending}>
        {t.deployments.detail.rollback}
      </Button>
    </Popconfirm>
  )
}
