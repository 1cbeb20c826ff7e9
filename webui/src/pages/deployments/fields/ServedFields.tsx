import { Form, Input, Select } from 'antd'
import { Link } from 'react-router'
import { useReadyVersions } from '@/api/models'
import { useSaid, useText } from '@/i18n'
import { suggestedName } from './names'

/** A served name is at home in URLs, shells and JSON. */
const NAME = /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/

export function ServedFields({
  editing,
  onSuggestName,
}: {
  editing: boolean
  onSuggestName: (name: string) => void
}) {
  const t = useText()
  const versions = useReadyVersions()
  const said = useSaid()
  const chosen = Form.useWatch<string | undefined>('version')
  const remark = versions.data?.find(({ id }) => id === chosen)?.reason // a gate that it failed, before it is refused
  const none = versions.data?.length === 0
  return (
    <>
      <Form.Item
        name="version"
        label={t.deployments.form.version}
        extra={
          none ? (
            <Link to="/models?import=demo">{t.deployments.form.noVersions}</Link>
          ) : remark ? (
            <span className="tone-warning">{said(remark)}</span>
          ) : (
            t.deployments.form.versionHint
          )
        }
        rules={[{ required: true, message: t.common.required(t.deployments.form.version) }]}
      >
        <Select
          showSearch={{ optionFilterProp: 'label' }}
          loading={versions.isPending}
          options={versions.data?.map((version) => ({
            value: version.id,
            label: [`${version.model_name} v${version.number}`, version.quantization || version.dtype]
              .filter(Boolean)
              .join(' · '),
          }))}
          onChange={(id) => {
            const version = versions.data?.find((one) => one.id === id)
            if (version) onSuggestName(suggestedName(version.model_name))
          }}
        />
      </Form.Item>
      <Form.Item
        name="name"
        label={t.deployments.form.name}
        extra={t.deployments.form.nameHint}
        rules={[{ required: true, pattern: NAME, message: t.deployments.form.nameBad }]}
      >
        <Input maxLength={100} disabled={editing} autoComplete="off" />
      </Form.Item>
      <Form.Item name="description" label={t.common.description}>
        <Input.TextArea autoSize={{ minRows: 1, maxRows: 4 }} maxLength={500} />
      </Form.Item>
    </>
  )
}
