import { Button, Drawer, Form, Input, Select } from 'antd'
import { useNavigate } from 'react-router'
import { useEngines } from '@/api/deployments'
import { useCompare } from '@/api/diagnosis'
import { useReadyVersions } from '@/api/models'
import type { CompareInput, Version } from '@/api/types'
import { useSaid } from '@/i18n'
import { useDiagnosisText } from '@/i18n/diagnosis'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { showFieldErrors } from '@/ui/formErrors'

const ENGINE = 'native'
const MAX_TEXT = 100_000

/** Starts a comparison of `version` with another, and goes to its job. */
export function CompareDrawer({ version, onClose }: { version: Version; onClose: () => void }) {
  const t = useDiagnosisText()
  const said = useSaid()
  const text = t.compare
  const navigate = useNavigate()
  const compare = useCompare(version.id)
  const [form] = Form.useForm<CompareInput>()
  const name = label(version)
  const submit = (values: CompareInput) =>
    compare.mutate(values, {
      onSuccess: (job) => navigate(`/jobs/${job.id}`),
      onError: (error) => showFieldErrors(form, error, said),
    })
  return (
    <Drawer
      open
      title={text.title(name)}
      size={480}
      onClose={onClose}
      extra={
        <Button type="primary" loading={compare.isPending} onClick={() => form.submit()}>
          {text.submit}
        </Button>
      }
    >
      <p className="muted">{text.lead}</p>
      <Form
        form={form}
        layout="vertical"
        onFinish={submit}
        requiredMark={false}
        initialValues={{ reference: version.id, reference_dtype: 'float32', dtype: 'auto', text: '' }}
      >
        <ReferenceField version={version} />
        <DtypeField name="reference_dtype" title={text.referenceDtype} />
        <DtypeField name="dtype" title={text.dtype(name)} />
        <Form.Item name="text" label={text.text} extra={text.textHint}>
          <Input.TextArea maxLength={MAX_TEXT} rows={4} />
        </Form.Item>
        <ErrorNotice error={compare.error} />
      </Form>
    </Drawer>
  )
}

function ReferenceField({ version }: { version: Version }) {
  const t = useDiagnosisText()
  const text = t.compare
  const versions = useReadyVersions()
  const alike = (versions.data ?? [version]).filter((one) => sameShape(one, version))
  return (
    <Form.Item
      name="reference"
      label={text.reference}
      extra={text.referenceHint}
      rules={[{ required: true }]}
    >
      <Select
        loading={versions.isPending}
        options={alike.map((one) => ({ value: one.id, label: label(one) }))}
      />
    </Form.Item>
  )
}

function DtypeField({ name, title }: { name: 'dtype' | 'reference_dtype'; title: string }) {
  const t = useDiagnosisText()
  const engines = useEngines()
  const known = engines.data?.find((engine) => engine.name === ENGINE)?.capabilities.dtypes ?? []
  return (
    <Form.Item name={name} label={title}>
      <Select
        options={[
          { value: 'auto', label: t.compare.auto },
          ...known.map((dtype) => ({ value: dtype, label: dtype })),
        ]}
      />
    </Form.Item>
  )
}

function label(version: Version): string {
  return `${version.model_name} v${version.number}`
}

/** Only these can be compared; the platform refuses others by name. */
function sameShape(a: Version, b: Version): boolean {
  return (
    a.shape.layers === b.shape.layers && a.shape.hidden === b.shape.hidden && a.shape.vocab === b.shape.vocab
  )
}
