import { Form, Input, Modal } from 'antd'
import { ApiError } from '@/api/client'
import { useChangePassword } from '@/api/session'
import { useSaid, useText } from '@/i18n'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { showFieldErrors } from '@/ui/formErrors'
import { useAct } from '@/ui/useAct'

interface Values {
  current: string
  new: string
  again: string
}

export function PasswordDialog({ open, onClose }: { open: boolean; onClose: () => void }) {
  const t = useText()
  const said = useSaid()
  const act = useAct()
  const [form] = Form.useForm<Values>()
  const change = useChangePassword()
  const close = () => {
    change.reset()
    form.resetFields()
    onClose()
  }
  const submit = (values: Values) =>
    change.mutate(
      { current: values.current, new: values.new },
      {
        onSuccess: () => {
          act.done(t.account.changed)
          close()
        },
        onError: (error) => showFieldErrors(form, error, said),
      },
    )
  const shownAtField = change.error instanceof ApiError && Object.keys(change.error.fields).length > 0
  return (
    <Modal
      open={open}
      title={t.account.changePassword}
      okText={t.common.save}
      cancelText={t.common.cancel}
      confirmLoading={change.isPending}
      onOk={() => form.submit()}
      onCancel={close}
    >
      <Form form={form} layout="vertical" onFinish={submit} requiredMark={false}>
        <Form.Item name="current" label={t.account.current} rules={[{ required: true }]}>
          <Input.Password autoComplete="current-password" />
        </Form.Item>
        <Form.Item name="new" label={t.account.next} rules={[{ required: true }]}>
          <Input.Password autoComplete="new-password" />
        </Form.Item>
        <Form.Item
          name="again"
          label={t.account.again}
          dependencies={['new']}
          rules={[
            { required: true },
            {
              validator: (_rule, value) =>
                value === form.getFieldValue('new')
                  ? Promise.resolve()
                  : Promise.reject(new Error(t.account.differ)),
            },
          ]}
        >
          <Input.Password autoComplete="new-password" />
        </Form.Item>
        {!shownAtField && <ErrorNotice error={change.error} />}
      </Form>
    </Modal>
  )
}
