import { Tag } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import type { ModelDetail, Version } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { DataTable } from '@/ui/DataTable'
import { Status } from '@/ui/Status'
import { Time } from '@/ui/Time'
import { formatBytes } from '@/ui/units'
import { useUrlState } from '@/ui/useUrlState'
import { VersionPanel } from './VersionPanel'

/** Versions as rows; each opens to its files, shape, aliases and import job. The newest is open at first. */
export function VersionsTab({ model }: { model: ModelDetail }) {
  const t = useText()
  const said = useSaid()
  const [open, setOpen] = useUrlState('version', String(model.versions[0]?.number ?? ''))
  const aliases = (version: Version) => model.aliases.filter((alias) => alias.version === version.id)
  const columns: ColumnsType<Version> = [
    { title: t.models.version, render: (_, version) => <strong>{`v${version.number}`}</strong>, width: 90 },
    {
      title: t.common.state,
      render: (_, version) => (
        <span className="inline">
          <Status state={version.state} />
          <span className="muted">{said(version.reason)}</span>
        </span>
      ),
    },
    {
      title: t.models.aliases,
      render: (_, version) =>
        aliases(version).map((alias) => (
          <Tag key={alias.name} color="cyan">
            {alias.name}
          </Tag>
        )),
    },
    { title: t.models.source, render: (_, version) => <SourceText version={version} /> },
    { title: t.models.format, render: (_, version) => version.format || '–' },
    {
      title: t.common.size,
      render: (_, version) => (version.size_bytes ? formatBytes(version.size_bytes) : '–'),
    },
    { title: t.common.created, render: (_, version) => <Time at={version.created_at} /> },
  ]
  return (
    <DataTable
      rowKey={(version) => String(version.number)}
      columns={columns}
      dataSource={model.versions}
      expandable={{
        expandedRowKeys: [open],
        onExpand: (expanded, version) => setOpen(expanded ? String(version.number) : 'none'),
        expandedRowRender: (version) => <VersionPanel model={model} version={version} />,
      }}
    />
  )
}

function SourceText({ version }: { version: Version }) {
  return (
    <>
      {version.source_ref}
      <div className="muted small">
        {[version.source_kind, version.source_revision.slice(0, 12)].filter(Boolean).join(' · ')}
      </div>
    </>
  )
}
