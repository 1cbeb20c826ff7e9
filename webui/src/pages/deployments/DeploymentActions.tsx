import { CommentOutlined, DeleteOutlined, EditOutlined } from '@ant-design/icons'
import { Button, Popconfirm, Tooltip } from 'antd'
import { useState } from 'react'
import { Link, useNavigate } from 'react-router'
import { useDeleteDeployment, useDeploymentAction } from '@/api/deployments'
import { useMayChange } from '@/api/session'
import type { Deployment } from '@/api/types'
import { useText } from '@/i18n'
import { ConfirmByName } from '@/ui/ConfirmByName'
import { useAct } from '@/ui/useAct'
import { ScalePopover } from './ScalePopover'

export function DeploymentActions({ deployment }: { deployment: Deployment }) {
  const t = useText()
  const act = useAct()
  const mayChange = useMayChange()
  const action = useDeploymentAction(deployment.id)
  const stopped = deployment.desired === 'stopped'
  const locked = !mayChange || deployment.state === 'deleting'
  return (
    <>
      <Link to={`/playground?model=${encodeURIComponent(deployment.name)}`}>
        <Button
          type="primary"
          icon={<CommentOutlined />}
          disabled={deployment.state !== 'ready' && deployment.state !== 'degraded'}
        >
          {t.deployments.chat}
        </Button>
      </Link>
      <ScalePopover deployment={deployment} disabled={locked} />
      {stopped ? (
        <Button
          disabled={locked}
          loading={action.isPending}
          onClick={() => action.mutate({ act: 'start' }, { onError: act.failed })}
        >
          {t.deployments.detail.start}
        </Button>
      ) : (
        <Popconfirm
          title={`${t.deployments.detail.stop}: ${deployment.name}`}
          description={
            <div className="confirm-text">{t.deployments.detail.stopEffect(deployment.instances.length)}</div>
          }
          okText={t.deployments.detail.stop}
          cancelText={t.common.cancel}
          okButtonProps={{ danger: true }}
          onConfirm={() => action.mutate({ act: 'stop' }, { onError: act.failed })}
        >
          <Button disabled={locked}>{t.deployments.detail.stop}</Button>
        </Popconfirm>
      )}
      <Link to={`/deployments/${deployment.id}/edit`}>
        <Button icon={<EditOutlined />} disabled={locked}>
          {t.common.edit}
        </Button>
      </Link>
      <DeleteButton deployment={deployment} disabled={locked} />
    </>
  )
}

function DeleteButton({ deployment, disabled }: { deployment: Deployment; disabled: boolean }) {
  const t = useText()
  const navigate = useNavigate()
  const [open, setOpen] = useState(false)
  const remove = useDeleteDeployment()
  return (
    <>
      <Tooltip title={t.deployments.detail.deleteTitle}>
        <Button
          danger
          icon={<DeleteOutlined />}
          aria-label={t.deployments.detail.deleteTitle}
          disabled={disabled}
          onClick={() => setOpen(true)}
        />
      </Tooltip>
      <ConfirmByName
        open={open}
        title={t.deployments.detail.deleteTitle}
        name={deployment.name}
        effect={t.deployments.detail.deleteEffect(deployment.name, deployment.instances.length)}
        error={remove.error}
        pending={remove.isPending}
        onCancel={() => {
          remove.reset()
          setOpen(false)
        }}
        onConfirm={() => remove.mutate(deployment.id, { onSuccess: () => navigate('/deployments') })}
      />
    </>
  )
}
