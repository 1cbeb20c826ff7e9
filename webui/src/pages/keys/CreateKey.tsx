import { Button, Drawer, Form, Input, InputNumber, Select, Switch } from 'antd'
import { useDeployments } from '@/api/deployments'
import { useCreateKey } from '@/api/operations'
import type { ApiKeyInput } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { showFieldErrors } from '@/ui/formErrors'
import { NewSecret } from './NewSecret'

interface Values {
  name: string
  allowed_models?: string[]
  requests_per_minute?: number | null
  tokens_per_minute?: number | null
  max_parallel?: number | null
  traffic_consent: boolean
  days: number
}

const DAY_MS = 86_400_000
const LIFETIMES = [30, 90, 365]

function toInput({ days, ...values }: Values): ApiKeyInput {
  return { ...values, expires_at: days > 0 ? new Date(Date.now() + days * DAY_MS).toISOString() : null }
}

export function CreateKey({ open, onClose }: { open: boolean; onClose: () => void }) {
  const t = useText()
  const said = useSaid()
  const create = useCreateKey()
  const [form] = Form.useForm<Values>()
  const close = () => {
    create.reset() // the secret leaves the page's memory with the drawer
    onClose()
  }
  return (
    <Drawer
      open={open}
      title={create.data ? t.keys.secretTitle : t.keys.create}
      size={480}
      onClose={close}
      // A click beside it must not lose a secret that is shown once.
      mask={{ closable: !create.data }}
      destroyOnHidden
      extra={
        create.data ? (
          <Button type="primary" onClick={close}>
            {t.keys.secretDone}
          </Button>
        ) : (
          <Button type="primary" loading={create.isPending} onClick={() => form.submit()}>
            {t.common.create}
          </Button>
        )
      }
    >
      {create.data ? (
        <NewSecret created={create.data} />
      ) : (
        <Form<Values>
          form={form}
          layout="vertical"
          requiredMark={false}
          preserve={false}
          initialValues={{
            name: '',
            allowed_models: [],
            requests_per_minute: null,
            tokens_per_minute: null,
            max_parallel: null,
            traffic_consent: false,
            days: 90,
          }}
          onFinish={(values) =>
            create.mutate(toInput(values), { onError: (error) => showFieldErrors(form, error, said) })
          }
        >
          <KeyFields />
          <ErrorNotice error={create.error} />
        </Form>
      )}
    </Drawer>
  )
}

function KeyFields() {
  const t = useText()
  const deployments = useDeployments()
  const limit = (name: 'requests_per_minute' | 'tokens_per_minute' | 'max_parallel', label: string) => (
    <Form.Item name={name} label={label} extra={t.keys.limitHint}>
      <InputNumber min={1} precision={0} className="full-width" />
    </Form.Item>
  )
  return (
    <>
      <Form.Item
        name="name"
        label={t.common.name}
        extra={t.keys.nameHint}
        rules={[{ required: true, whitespace: true, message: t.common.required(t.common.name) }]}
      >
        <Input maxLength={100} autoFocus autoComplete="off" />
      </Form.Item>
      <Form.Item name="allowed_models" label={t.keys.models} extra={t.keys.modelsHint}>
        <Select
          mode="multiple"
          placeholder={t.keys.allModels}
          options={deployments.data?.results.map(({ name }) => ({ value: name, label: name }))}
        />
      </Form.Item>
      {limit('requests_per_minute', t.keys.rpm)}
      {limit('tokens_per_minute', t.keys.tpm)}
      {limit('max_parallel', t.keys.parallel)}
      <Form.Item
        name="traffic_consent"
        label={t.keys.consent}
        extra={t.keys.consentHint}
        valuePropName="checked"
      >
        <Switch />
      </Form.Item>
      <Form.Item name="days" label={t.keys.expires}>
        <Select
          options={[
            ...LIFETIMES.map((days) => ({ value: days, label: t.keys.days(days) })),
            { value: 0, label: t.keys.expiresNever },
          ]}
        />
      </Form.Item>
    </>
  )
}
