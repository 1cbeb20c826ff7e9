import { DeploymentUnitOutlined, PlusOutlined, SearchOutlined } from '@ant-design/icons'
import { Button, Input, Space, Tag } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { Link } from 'react-router'
import { useModels } from '@/api/models'
import { useMayChange } from '@/api/session'
import type { Model } from '@/api/types'
import { useText } from '@/i18n'
import { DataTable } from '@/ui/DataTable'
import { EmptyState } from '@/ui/EmptyState'
import { Loaded, Page } from '@/ui/Page'
import { Status } from '@/ui/Status'
import { Time } from '@/ui/Time'
import { formatBytes, formatParameters } from '@/ui/units'
import { useUrlState } from '@/ui/useUrlState'
import { ImportDrawer } from './ImportDrawer'

export function ModelList() {
  const t = useText()
  const models = useModels()
  const mayChange = useMayChange()
  const [opened, setOpened] = useUrlState('import')
  return (
    <Page
      title={t.models.title}
      lead={t.models.lead}
      actions={
        <Button
          type="primary"
          icon={<PlusOutlined />}
          disabled={!mayChange}
          onClick={() => setOpened('demo')}
        >
          {t.models.import}
        </Button>
      }
    >
      <Loaded query={models}>
        {(page) =>
          page.results.length === 0 ? (
            <EmptyState
              icon={<DeploymentUnitOutlined />}
              title={t.models.emptyTitle}
              text={t.models.emptyText}
              action={
                <Button type="primary" disabled={!mayChange} onClick={() => setOpened('demo')}>
                  {t.models.importDemo}
                </Button>
              }
            />
          ) : (
            <ModelTable models={page.results} />
          )
        }
      </Loaded>
      <ImportDrawer source={opened} onSource={setOpened} />
    </Page>
  )
}

function ModelTable({ models }: { models: Model[] }) {
  const t = useText()
  const [filter, setFilter] = useUrlState('q')
  const shown = models.filter((model) => model.name.toLowerCase().includes(filter.toLowerCase()))
  const columns: ColumnsType<Model> = [
    {
      title: t.common.name,
      dataIndex: 'name',
      sorter: (a, b) => a.name.localeCompare(b.name),
      render: (name: string, model) => (
        <>
          <Link to={`/models/${model.id}`}>{name}</Link>
          <div className="muted small">{t.models.versions(model.versions_count)}</div>
        </>
      ),
    },
    {
      title: t.models.latest,
      render: (_, { latest }) =>
        latest && (
          <Space>
            {`v${latest.number}`}
            <Status state={latest.state} reason={latest.reason} />
          </Space>
        ),
    },
    {
      title: t.models.architecture,
      render: (_, { latest }) => (
        <>
          {latest?.architecture || '–'}
          {latest?.shape.parameters ? (
            <div className="muted small">
              {t.models.parameterCount(formatParameters(latest.shape.parameters))}
            </div>
          ) : null}
        </>
      ),
    },
    {
      title: t.common.size,
      render: (_, { latest }) => (
        <>
          {latest?.size_bytes ? formatBytes(latest.size_bytes) : '–'}
          <div className="muted small">
            {[latest?.format, latest?.quantization].filter(Boolean).join(' · ')}
          </div>
        </>
      ),
    },
    {
      title: t.models.license,
      render: (_, { latest }) => latest?.license || <span className="muted">{t.models.noLicense}</span>,
    },
    {
      title: t.models.aliases,
      render: (_, { aliases }) =>
        aliases.map((alias) => <Tag key={alias.name}>{`${alias.name} → v${alias.number}`}</Tag>),
    },
    { title: t.common.created, render: (_, model) => <Time at={model.created_at} /> },
  ]
  return (
    <>
      <div className="filters">
        <Input
          className="filter-text"
          prefix={<SearchOutlined />}
          placeholder={t.models.search}
          aria-label={t.models.search}
          value={filter}
          allowClear
          onChange={(change) => setFilter(change.target.value)}
        />
        <span className="muted">{t.common.total(shown.length)}</span>
      </div>
      <DataTable columns={columns} dataSource={shown} locale={{ emptyText: t.models.noMatch }} />
    </>
  )
}
