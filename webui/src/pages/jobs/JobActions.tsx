import { Button, Popconfirm } from 'antd'
import { useJobAction } from '@/api/operations'
import { useMayChange } from '@/api/session'
import type { Job } from '@/api/types'
import { useText } from '@/i18n'
import { useAct } from '@/ui/useAct'

/** Cancel while it runs, retry once it has failed or was cancelled. */
export function JobActions(props: { job: Job; size?: 'small' | 'middle'; cancelEffect?: string }) {
  const { job, size = 'small', cancelEffect } = props
  const t = useText()
  const act = useAct()
  const mayChange = useMayChange()
  const action = useJobAction(job.id)
  if (job.state === 'queued' || job.state === 'running') {
    return (
      <Popconfirm
        title={t.jobs.cancel}
        description={<div className="confirm-text">{cancelEffect ?? t.jobs.cancelEffect}</div>}
        okText={t.jobs.cancel}
        cancelText={t.common.close}
        okButtonProps={{ danger: true }}
        onConfirm={() => action.mutate('cancel', { onError: act.failed })}
      >
        <Button size={size} danger disabled={!mayChange} loading={action.isPending}>
          {t.jobs.cancel}
        </Button>
      </Popconfirm>
    )
  }
  if (job.state === 'errored' || job.state === 'cancelled') {
    return (
      <Button
        size={size}
        disabled={!mayChange}
        loading={action.isPending}
        onClick={() => action.mutate('retry', { onError: act.failed })}
      >
        {t.jobs.retry}
      </Button>
    )
  }
  return null
}
