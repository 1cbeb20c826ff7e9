import { EditOutlined } from '@ant-design/icons'
import { Button, Input } from 'antd'
import { useState } from 'react'
import { useText } from '@/i18n'
import { useAct } from './useAct'

/** A line of text that turns into a field where it may be changed. Escape leaves it as it was. */
export function EditableText(props: {
  value: string
  disabled: boolean
  onSave: (value: string) => Promise<unknown>
}) {
  const t = useText()
  const act = useAct()
  const [draft, setDraft] = useState<string | null>(null)
  if (draft === null) {
    return (
      <span className="inline">
        {props.value}
        {!props.disabled && (
          <Button type="text" size="small" icon={<EditOutlined />} onClick={() => setDraft(props.value)}>
            {props.value ? t.common.edit : t.common.description}
          </Button>
        )}
      </span>
    )
  }
  const save = async () => {
    try {
      if (draft !== props.value) await props.onSave(draft)
      setDraft(null)
    } catch (error) {
      act.failed(error)
    }
  }
  return (
    <span className="inline">
      <Input
        value={draft}
        autoFocus
        className="edit-text"
        aria-label={t.common.description}
        onChange={(change) => setDraft(change.target.value)}
        onPressEnter={save}
        onKeyDown={(key) => key.key === 'Escape' && setDraft(null)}
      />
      <Button type="primary" onClick={save}>
        {t.common.save}
      </Button>
      <Button onClick={() => setDraft(null)}>{t.common.cancel}</Button>
    </span>
  )
}
