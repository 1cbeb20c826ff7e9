import { Button, Drawer, Form, InputNumber, Select, Switch } from 'antd'
import { useNavigate } from 'react-router'
import { type DomainTokensInput, useAddDomainTokens } from '@/api/domainTokens'
import type { Version } from '@/api/types'
import { useSaid } from '@/i18n'
import { useDomainTokensText } from '@/i18n/domainTokens'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { showFieldErrors } from '@/ui/formErrors'
import { CorpusField } from './CorpusField'
import { TermsField } from './TermsField'
import { termsOf } from './terms'

interface Values {
  terms: string
  corpus: string
  candidates: number | null
  min_count: number | null
  dtype: DomainTokensInput['dtype']
  skip_unneeded: boolean
}

const FIRST: Values = {
  terms: '',
  corpus: '',
  candidates: 200,
  min_count: 5,
  dtype: 'auto',
  skip_unneeded: true,
}
const DTYPES = ['float32', 'bfloat16', 'float16']

/** Starts the job, as a preview or for a new version, and goes to it. */
export function DomainTokensDrawer({ version, onClose }: { version: Version; onClose: () => void }) {
  const text = useDomainTokensText()
  const said = useSaid()
  const navigate = useNavigate()
  const add = useAddDomainTokens(version.id)
  const [form] = Form.useForm<Values>()
  const corpus = Form.useWatch('corpus', form)
  const sending = add.isPending ? (add.variables.preview ? 'preview' : 'make') : ''

  const send = async (preview: boolean) => {
    const values = await form.validateFields().catch(() => null) // what is wrong stands under its field
    if (!values) return
    add.mutate(bodyOf(values, preview), {
      onSuccess: (job) => navigate(`/jobs/${job.id}`),
      onError: (error) => showFieldErrors(form, error, said),
    })
  }
  return (
    <Drawer
      open
      title={text.title(`${version.model_name} v${version.number}`)}
      size={560}
      onClose={onClose}
      extra={
        <span className="inline">
          <Button loading={sending === 'preview'} disabled={add.isPending} onClick={() => send(true)}>
            {text.preview}
          </Button>
          <Button
            type="primary"
            loading={sending === 'make'}
            disabled={add.isPending}
            onClick={() => send(false)}
          >
            {text.make}
          </Button>
        </span>
      }
    >
      <p className="muted">{text.lead}</p>
      <Form form={form} layout="vertical" requiredMark={false} initialValues={FIRST}>
        <TermsField />
        <CorpusField />
        {corpus && (
          <div className="inline">
            <Form.Item name="candidates" label={text.candidates} extra={text.candidatesHint}>
              <InputNumber min={0} max={1000} precision={0} />
            </Form.Item>
            <Form.Item name="min_count" label={text.minCount}>
              <InputNumber min={1} max={1_000_000} precision={0} />
            </Form.Item>
          </div>
        )}
        {version.format === 'gguf' && (
          <Form.Item name="dtype" label={text.dtype} extra={text.dtypeHint}>
            <Select
              options={[
                { value: 'auto', label: text.dtypeAuto },
                ...DTYPES.map((value) => ({ value, label: value })),
              ]}
            />
          </Form.Item>
        )}
        <Form.Item name="skip_unneeded" label={text.skip} extra={text.skipHint} valuePropName="checked">
          <Switch />
        </Form.Item>
        <ErrorNotice error={add.error} />
      </Form>
    </Drawer>
  )
}

function bodyOf(values: Values, preview: boolean): DomainTokensInput {
  const candidates = values.corpus ? (values.candidates ?? 0) : 0
  return {
    terms: termsOf(values.terms),
    corpus: values.corpus || null,
    candidates,
    ...(candidates > 0 && { min_count: values.min_count ?? 1 }),
    dtype: values.dtype ?? 'auto',
    skip_unneeded: values.skip_unneeded,
    preview,
  }
}
