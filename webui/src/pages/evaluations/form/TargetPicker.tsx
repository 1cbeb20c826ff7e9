import { Form, Modal, Select } from 'antd'
import { useState } from 'react'
import { useDeployments } from '@/api/deployments'
import type { TargetInput } from '@/api/evaluations'
import { useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { answers } from './targets'

/** Asks which deployment a suite is to be run on. */
export function TargetPicker(props: {
  title: string
  pending: boolean
  error: unknown
  onChoose: (target: TargetInput) => void
  onClose: () => void
}) {
  const t = useText()
  const text = useEvaluationText()
  const deployments = useDeployments()
  const ready = deployments.data?.results.filter(answers) ?? []
  const [asked, setAsked] = useState<string>()
  const chosen = asked ?? ready[0]?.id
  return (
    <Modal
      open
      title={props.title}
      okText={text.form.submit}
      cancelText={t.common.cancel}
      okButtonProps={{ disabled: chosen === undefined }}
      confirmLoading={props.pending}
      onOk={() => chosen && props.onChoose({ deployment: chosen })}
      onCancel={props.onClose}
    >
      <Form layout="vertical">
        <Form.Item
          label={text.form.target}
          extra={deployments.data && ready.length === 0 ? text.form.noTarget : text.form.targetHint}
        >
          <Select
            aria-label={text.form.target}
            value={chosen}
            loading={deployments.isPending}
            onChange={setAsked}
            options={ready.map((one) => ({ value: one.id, label: one.name }))}
          />
        </Form.Item>
      </Form>
      <ErrorNotice error={props.error ?? deployments.error} />
    </Modal>
  )
}
