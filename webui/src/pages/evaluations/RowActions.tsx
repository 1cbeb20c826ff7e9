import { Button, Popconfirm } from 'antd'
import { useRemove } from '@/api/evaluations'
import { useText } from '@/i18n'
import { useAct } from '@/ui/useAct'

/** Edit and delete, at a row's end. `title` asks before it is deleted, `effect` says what goes with it. */
export function RowActions(props: {
  what: 'schedules' | 'gates'
  id: string
  mayChange: boolean
  title: string
  effect: string
  onEdit: () => void
}) {
  const t = useText()
  const act = useAct()
  const remove = useRemove(props.what)
  return (
    <span className="eval-actions">
      <Button size="small" disabled={!props.mayChange} onClick={props.onEdit}>
        {t.common.edit}
      </Button>
      <Popconfirm
        title={props.title}
        description={<div className="confirm-text">{props.effect}</div>}
        okText={t.common.delete}
        cancelText={t.common.close}
        okButtonProps={{ danger: true }}
        onConfirm={() => remove.mutate(props.id, { onError: act.failed })}
      >
        <Button size="small" danger disabled={!props.mayChange} loading={remove.isPending}>
          {t.common.delete}
        </Button>
      </Popconfirm>
    </span>
  )
}
