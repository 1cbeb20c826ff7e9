import { Button, InputNumber, Popover } from 'antd'
import { useId, useState } from 'react'
import { useDeploymentAction } from '@/api/deployments'
import type { Deployment } from '@/api/types'
import { useText } from '@/i18n'
import { ErrorNotice } from '@/ui/ErrorNotice'

/** Says what a new count does before it is done. */
export function ScalePopover({ deployment, disabled }: { deployment: Deployment; disabled: boolean }) {
  const t = useText()
  const [open, setOpen] = useState(false)
  return (
    <Popover
      open={open}
      onOpenChange={setOpen}
      trigger="click"
      placement="bottom"
      destroyOnHidden
      content={<Scale deployment={deployment} onDone={() => setOpen(false)} />}
    >
      <Button disabled={disabled}>{t.deployments.detail.scale}</Button>
    </Popover>
  )
}

function Scale({ deployment, onDone }: { deployment: Deployment; onDone: () => void }) {
  const t = useText()
  const now = deployment.replicas.unified ?? 0
  const [count, setCount] = useState(now)
  const action = useDeploymentAction(deployment.id)
  const input = useId()
  const text = t.deployments.detail
  const effect =
    count > now ? text.scaleUp(count - now) : count < now ? text.scaleDown(now - count) : text.scaleSame
  return (
    <div className="stack scale">
      <label htmlFor={input}>{text.scaleTo}</label>
      <InputNumber
        id={input}
        min={0}
        max={64}
        precision={0}
        value={count}
        autoFocus
        onChange={(value) => setCount(value ?? 0)}
        className="full-width"
      />
      <span aria-live="polite">{effect}</span>
      <ErrorNotice error={action.error} />
      <Button
        type="primary"
        disabled={count === now}
        loading={action.isPending}
        onClick={() =>
          action.mutate(
            { act: 'scale', replicas: { ...deployment.replicas, unified: count } },
            { onSuccess: onDone },
          )
        }
      >
        {text.scale}
      </Button>
    </div>
  )
}
