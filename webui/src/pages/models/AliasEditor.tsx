import { Button, Form, Input, Popover, Tag } from 'antd'
import { useState } from 'react'
import { useRemoveAlias, useSetAlias } from '@/api/models'
import { useMayChange } from '@/api/session'
import type { ModelDetail, Version } from '@/api/types'
import { useText } from '@/i18n'
import { isRefusal, PastGate } from '@/pages/evaluations/PastGate'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { useAct } from '@/ui/useAct'

export function AliasEditor({ model, version }: { model: ModelDetail; version: Version }) {
  const t = useText()
  const act = useAct()
  const mayChange = useMayChange()
  const [open, setOpen] = useState(false)
  const set = useSetAlias(model.id)
  const remove = useRemoveAlias(model.id)
  const own = model.aliases.filter((alias) => alias.version === version.id)
  const form = (
    <Form
      layout="vertical"
      className="alias-form"
      onFinish={({ name, override }: { name: string; override?: string }) =>
        set.mutate(
          { name, version: version.id, ...(override ? { override } : {}) },
          { onSuccess: () => setOpen(false) },
        )
      }
    >
      <Form.Item
        name="name"
        label={t.models.detail.aliasName}
        extra={t.models.detail.aliasHint}
        rules={[{ required: true, pattern: /^[\w.-]{1,50}$/, message: t.models.detail.aliasBad }]}
      >
        <Input autoFocus />
      </Form.Item>
      <ErrorNotice error={set.error} />
      {isRefusal(set.error) && <PastGate />}
      <Button type="primary" htmlType="submit" loading={set.isPending}>
        {t.common.save}
      </Button>
    </Form>
  )
  return (
    <>
      <Popover open={open} onOpenChange={setOpen} trigger="click" content={form} destroyOnHidden>
        <Button disabled={!mayChange || version.state !== 'ready'}>{t.models.detail.addAlias}</Button>
      </Popover>
      {own.map((alias) => (
        <Tag
          key={alias.name}
          color="cyan"
          closable={mayChange ? { 'aria-label': t.models.detail.removeAlias(alias.name) } : false}
          onClose={(event) => {
            event.preventDefault() // it goes when the server says so
            remove.mutate(alias.name, { onError: act.failed })
          }}
        >
          {alias.name}
        </Tag>
      ))}
    </>
  )
}
