import { Button, Tag } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { useState } from 'react'
import { useRevokeKey } from '@/api/operations'
import { useMayChange } from '@/api/session'
import type { ApiKey } from '@/api/types'
import { type Dictionary, useLocale, useText } from '@/i18n'
import { ConfirmByName } from '@/ui/ConfirmByName'
import { DataTable } from '@/ui/DataTable'
import { Status } from '@/ui/Status'
import { Time } from '@/ui/Time'
import { formatCount } from '@/ui/units'

export function keyState(key: ApiKey, now = Date.now()): 'active' | 'expired' | 'revoked' {
  if (key.revoked_at !== null) return 'revoked'
  if (key.expires_at !== null && new Date(key.expires_at).getTime() <= now) return 'expired'
  return 'active'
}

function limitTexts(key: ApiKey, t: Dictionary, locale: string): string[] {
  const texts: string[] = []
  if (key.requests_per_minute !== null)
    texts.push(t.keys.rpmShort(formatCount(key.requests_per_minute, locale)))
  if (key.tokens_per_minute !== null) texts.push(t.keys.tpmShort(formatCount(key.tokens_per_minute, locale)))
  if (key.max_parallel !== null) texts.push(t.keys.parallelShort(formatCount(key.max_parallel, locale)))
  return texts
}

function listed(texts: string[]) {
  return texts.length > 0 && texts.map((text) => <div key={text}>{text}</div>)
}

export function KeyTable({ keys }: { keys: ApiKey[] }) {
  const t = useText()
  const locale = useLocale()
  const mayChange = useMayChange()
  const [revoking, setRevoking] = useState<ApiKey | null>(null)
  const revoke = useRevokeKey()
  const columns: ColumnsType<ApiKey> = [
    {
      title: t.common.name,
      render: (_, key) => (
        <>
          <strong>{key.name}</strong>
          <div>
            <code>{key.prefix}…</code>
          </div>
        </>
      ),
    },
    { title: t.common.state, render: (_, key) => <Status state={keyState(key)} /> },
    {
      title: t.keys.models,
      render: (_, key) =>
        key.allowed_models.length === 0 ? (
          <span className="muted">{t.keys.allModels}</span>
        ) : (
          key.allowed_models.map((model) => <Tag key={model}>{model}</Tag>)
        ),
    },
    {
      title: t.keys.limits,
      render: (_, key) =>
        listed(limitTexts(key, t, locale)) || <span className="muted">{t.keys.noLimits}</span>,
    },
    { title: t.keys.expires, render: (_, key) => <Time at={key.expires_at} absent={t.keys.expiresNever} /> },
    { title: t.keys.lastUsed, render: (_, key) => <Time at={key.last_used_at} absent={t.keys.neverUsed} /> },
    {
      title: t.common.created,
      render: (_, key) => (
        <>
          <Time at={key.created_at} />
          {key.created_by && <div className="muted small">{t.common.by(key.created_by)}</div>}
        </>
      ),
    },
    {
      title: t.common.actions,
      render: (_, key) =>
        key.revoked_at === null && (
          <Button size="small" danger disabled={!mayChange} onClick={() => setRevoking(key)}>
            {t.keys.revoke}
          </Button>
        ),
    },
  ]
  const close = () => {
    revoke.reset()
    setRevoking(null)
  }
  return (
    <>
      <DataTable columns={columns} dataSource={keys} />
      <ConfirmByName
        open={revoking !== null}
        title={t.keys.revokeTitle(revoking?.name ?? '')}
        name={revoking?.name ?? ''}
        effect={t.keys.revokeEffect}
        error={revoke.error}
        pending={revoke.isPending}
        onCancel={close}
        onConfirm={() => revoking && revoke.mutate(revoking.id, { onSuccess: close })}
      />
    </>
  )
}
