import { Input, Modal } from 'antd'
import { type ReactNode, useId, useState } from 'react'
import { useText } from '@/i18n'
import { ErrorNotice } from './ErrorNotice'

/** For what cannot be undone: names the effect, and asks for the name. */
export function ConfirmByName(props: {
  open: boolean
  title: string
  name: string
  effect: ReactNode
  error: unknown
  pending: boolean
  onConfirm: () => void
  onCancel: () => void
}) {
  const t = useText()
  const [typed, setTyped] = useState('')
  const input = useId()
  const matches = typed === props.name
  return (
    <Modal
      open={props.open}
      title={props.title}
      okText={props.title}
      cancelText={t.common.cancel}
      okButtonProps={{ danger: true, disabled: !matches }}
      confirmLoading={props.pending}
      onOk={props.onConfirm}
      onCancel={props.onCancel}
      afterClose={() => setTyped('')}
      destroyOnHidden
    >
      <p>{props.effect}</p>
      <p>{t.common.irreversible}</p>
      <label htmlFor={input}>{t.common.typeName(props.name)}</label>
      <Input
        id={input}
        value={typed}
        autoFocus
        autoComplete="off"
        onChange={(change) => setTyped(change.target.value)}
        onPressEnter={() => matches && props.onConfirm()}
      />
      <ErrorNotice error={props.error} />
    </Modal>
  )
}
