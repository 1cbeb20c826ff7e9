import { Alert, Button, Drawer, Form, Input, Segmented } from 'antd'
import { Link } from 'react-router'
import { useImportModel } from '@/api/models'
import type { ModelImport } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { showFieldErrors } from '@/ui/formErrors'

type Source = ModelImport['source']

function sourceOf(text: string): Source {
  return text === 'hub' || text === 'path' ? text : 'demo'
}

/** `source` comes from the address; empty means closed. */
export function ImportDrawer({ source, onSource }: { source: string; onSource: (source: string) => void }) {
  const t = useText()
  const said = useSaid()
  const chosen = sourceOf(source)
  const importing = useImportModel()
  const [form] = Form.useForm<Omit<ModelImport, 'source'>>()

  const close = () => {
    importing.reset()
    form.resetFields()
    onSource('')
  }
  const submit = (values: Omit<ModelImport, 'source'>) => {
    const filled = Object.fromEntries(Object.entries(values).filter(([, value]) => value)) as typeof values
    importing.mutate(
      { ...filled, source: chosen },
      { onError: (error) => showFieldErrors(form, error, said) },
    )
  }
  return (
    <Drawer
      open={source !== ''}
      title={t.models.drawer.title}
      size={480}
      onClose={close}
      destroyOnHidden
      extra={
        importing.data ? (
          <Button onClick={close}>{t.common.close}</Button>
        ) : (
          <Button type="primary" loading={importing.isPending} onClick={() => form.submit()}>
            {t.models.drawer.submit}
          </Button>
        )
      }
    >
      {importing.data ? (
        <Alert
          type="success"
          showIcon
          role="status"
          title={t.models.drawer.started}
          description={<Link to={`/jobs/${importing.data.id}`}>{t.models.drawer.watch}</Link>}
        />
      ) : (
        <Form form={form} layout="vertical" onFinish={submit} requiredMark={false}>
          <Form.Item label={t.models.drawer.source}>
            <Segmented<Source>
              block
              aria-label={t.models.drawer.source}
              value={chosen}
              onChange={(choice) => {
                importing.reset()
                onSource(choice)
              }}
              options={[
                { value: 'demo', label: t.models.drawer.demo },
                { value: 'hub', label: t.models.drawer.hub },
                { value: 'path', label: t.models.drawer.path },
              ]}
            />
          </Form.Item>
          <SourceFields source={chosen} />
          <Form.Item name="name" label={t.models.drawer.name} extra={t.models.drawer.nameHint}>
            <Input maxLength={100} />
          </Form.Item>
          <ErrorNotice error={importing.error} />
        </Form>
      )}
    </Drawer>
  )
}

function SourceFields({ source }: { source: Source }) {
  const t = useText()
  if (source === 'demo') return <p className="muted">{t.models.drawer.demoText}</p>
  if (source === 'path') {
    return (
      <Form.Item
        key="path"
        name="ref"
        label={t.models.drawer.pathRef}
        extra={t.models.drawer.pathHint}
        rules={[{ required: true, pattern: /^\//, message: t.models.drawer.pathBad }]}
      >
        <Input placeholder="/srv/models/my-model.gguf" maxLength={500} />
      </Form.Item>
    )
  }
  return (
    <>
      <Form.Item
        key="hub"
        name="ref"
        label={t.models.drawer.hubRef}
        extra={t.models.drawer.hubHint}
        rules={[{ required: true, pattern: /^[\w.-]+\/[\w.-]+$/, message: t.models.drawer.hubBad }]}
      >
        <Input placeholder="owner/name" maxLength={200} />
      </Form.Item>
      <Form.Item name="revision" label={t.models.drawer.revision} extra={t.models.drawer.revisionHint}>
        <Input placeholder="main" maxLength={100} />
      </Form.Item>
    </>
  )
}
