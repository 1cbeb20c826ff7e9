import { DeleteOutlined } from '@ant-design/icons'
import { Button, Tabs } from 'antd'
import { useState } from 'react'
import { useNavigate, useParams } from 'react-router'
import { useDeleteModel, useEditModel, useModel } from '@/api/models'
import { useMayChange } from '@/api/session'
import type { ModelDetail } from '@/api/types'
import { useText } from '@/i18n'
import { ConfirmByName } from '@/ui/ConfirmByName'
import { EditableText } from '@/ui/EditableText'
import { Loaded, Page } from '@/ui/Page'
import { formatBytes } from '@/ui/units'
import { useUrlState } from '@/ui/useUrlState'
import { LineageTab } from './LineageTab'
import { VersionsTab } from './VersionsTab'

export function ModelDetailPage() {
  const t = useText()
  const { id = '' } = useParams()
  const model = useModel(id)
  const mayChange = useMayChange()
  const [tab, setTab] = useUrlState('tab', 'versions')
  const [deleting, setDeleting] = useState(false)
  return (
    <Page
      title={model.data?.name ?? t.models.title}
      parent={{ title: t.models.title, to: '/models' }}
      lead={model.data && <Description model={model.data} />}
      actions={
        model.data && (
          <Button danger icon={<DeleteOutlined />} disabled={!mayChange} onClick={() => setDeleting(true)}>
            {t.models.detail.deleteModel}
          </Button>
        )
      }
    >
      <Loaded query={model}>
        {(data) => (
          <>
            <Tabs
              activeKey={tab}
              onChange={setTab}
              destroyOnHidden
              items={[
                {
                  key: 'versions',
                  label: t.models.detail.tabVersions,
                  children: <VersionsTab model={data} />,
                },
                {
                  key: 'lineage',
                  label: t.models.detail.tabLineage,
                  children: <LineageTab modelId={data.id} />,
                },
              ]}
            />
            <DeleteModel model={data} open={deleting} onClose={() => setDeleting(false)} />
          </>
        )}
      </Loaded>
    </Page>
  )
}

function Description({ model }: { model: ModelDetail }) {
  const edit = useEditModel(model.id)
  const mayChange = useMayChange()
  return (
    <EditableText
      value={model.description}
      disabled={!mayChange}
      onSave={(description) => edit.mutateAsync({ description })}
    />
  )
}

function DeleteModel({ model, open, onClose }: { model: ModelDetail; open: boolean; onClose: () => void }) {
  const t = useText()
  const navigate = useNavigate()
  const remove = useDeleteModel()
  const bytes = model.versions.reduce((total, version) => total + version.size_bytes, 0)
  return (
    <ConfirmByName
      open={open}
      title={t.models.detail.deleteModel}
      name={model.name}
      effect={t.models.detail.deleteModelEffect(model.versions.length, formatBytes(bytes))}
      error={remove.error}
      pending={remove.isPending}
      onCancel={() => {
        remove.reset()
        onClose()
      }}
      onConfirm={() => remove.mutate(model.id, { onSuccess: () => navigate('/models') })}
    />
  )
}
