import { DeleteOutlined, RocketOutlined } from '@ant-design/icons'
import { Button, Collapse, Tooltip } from 'antd'
import { useState } from 'react'
import { Link } from 'react-router'
import { useDeleteVersion, useVersion } from '@/api/models'
import { useMayChange } from '@/api/session'
import type { ModelDetail, Version } from '@/api/types'
import { useText } from '@/i18n'
import { ConfirmByName } from '@/ui/ConfirmByName'
import { CodeBlock, Digest } from '@/ui/Copy'
import { DataTable } from '@/ui/DataTable'
import { formatBytes } from '@/ui/units'
import { AliasEditor } from './AliasEditor'
import { CompareButton } from './compare/CompareButton'
import { DomainTokensButton } from './domain/DomainTokensButton'
import { DraftsButton } from './drafts/DraftsButton'
import { ImportProgress } from './ImportProgress'
import { QuantizeButton } from './QuantizeButton'
import { ShapeTable } from './ShapeTable'

export function VersionPanel({ model, version }: { model: ModelDetail; version: Version }) {
  const t = useText()
  const mayChange = useMayChange()
  const [deleting, setDeleting] = useState(false)
  const remove = useDeleteVersion()
  return (
    <div className="stack version-panel">
      {version.state !== 'ready' && version.job && <ImportProgress jobId={version.job} />}
      {version.state === 'failed' && <span className="muted">{t.models.detail.failedHint}</span>}
      <div className="inline">
        <Tooltip title={version.state === 'ready' ? undefined : t.models.detail.deployHint}>
          <Link to={`/deployments/new?version=${version.id}`}>
            <Button
              type="primary"
              icon={<RocketOutlined />}
              disabled={version.state !== 'ready' || !mayChange}
            >
              {t.models.detail.deploy}
            </Button>
          </Link>
        </Tooltip>
        <AliasEditor model={model} version={version} />
        <QuantizeButton version={version} />
        <DomainTokensButton version={version} />
        <DraftsButton version={version} />
        <CompareButton version={version} />
        {version.job && (
          <Link to={`/jobs/${version.job}`}>
            <Button type="link">{t.models.detail.importJob}</Button>
          </Link>
        )}
        <Button
          type="text"
          danger
          icon={<DeleteOutlined />}
          disabled={!mayChange}
          onClick={() => setDeleting(true)}
        >
          {t.models.detail.deleteVersion}
        </Button>
      </div>
      <ShapeTable version={version} />
      <Files version={version} />
      {version.state === 'ready' && <ChatTemplate version={version} />}
      <ConfirmByName
        open={deleting}
        title={t.models.detail.deleteVersion}
        name={`${model.name} v${version.number}`}
        effect={t.models.detail.deleteVersionEffect(formatBytes(version.size_bytes))}
        error={remove.error}
        pending={remove.isPending}
        onCancel={() => {
          remove.reset()
          setDeleting(false)
        }}
        onConfirm={() => remove.mutate(version.id, { onSuccess: () => setDeleting(false) })}
      />
    </div>
  )
}

function Files({ version }: { version: Version }) {
  const t = useText()
  if (version.files.length === 0) return null
  return (
    <DataTable
      size="small"
      rowKey="name"
      dataSource={version.files}
      columns={[
        { title: t.models.detail.file, dataIndex: 'name' },
        { title: t.common.size, render: (_, file) => formatBytes(file.size) },
        {
          title: t.models.detail.sha256,
          render: (_, file) => <Digest value={file.sha256} name={`SHA-256 ${file.name}`} length={16} />,
        },
      ]}
    />
  )
}

function ChatTemplate({ version }: { version: Version }) {
  const t = useText()
  const [open, setOpen] = useState(false)
  const detail = useVersion(open ? version.id : undefined)
  if (!version.has_chat_template) return <span className="muted">{t.models.detail.noChatTemplate}</span>
  return (
    <Collapse
      size="small"
      onChange={(keys) => setOpen(keys.length > 0)}
      items={[
        {
          key: 'template',
          label: t.models.detail.chatTemplate,
          children: detail.data ? (
            <CodeBlock code={detail.data.chat_template} name={t.models.detail.chatTemplate} />
          ) : (
            t.common.loading
          ),
        },
      ]}
    />
  )
}
