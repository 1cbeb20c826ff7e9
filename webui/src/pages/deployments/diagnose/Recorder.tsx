import { Alert, Button, Card, Form, InputNumber, Space } from 'antd'
import { type Recorded, useRecord } from '@/api/diagnosis'
import { useDiagnosisText } from '@/i18n/diagnosis'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { formatBytes } from '@/ui/units'

const MAX_STEPS = 200
const MAX_WAIT_S = 60

interface Asked {
  steps: number
  timeout_s: number
}

/** Records the next steps of an engine into a file that the browser saves. */
export function Recorder(props: { instance: string; what: Recorded; title: string; lead: string }) {
  const t = useDiagnosisText()
  const record = useRecord(props.instance, props.what)
  return (
    <Card title={props.title} size="small">
      <div className="stack">
        <span className="muted">{props.lead}</span>
        <Form<Asked>
          layout="inline"
          initialValues={{ steps: 16, timeout_s: 20 }}
          onFinish={(asked) => record.mutate(asked)}
          requiredMark={false}
        >
          <Form.Item name="steps" label={t.steps} rules={[{ required: true }]}>
            <InputNumber min={1} max={MAX_STEPS} precision={0} />
          </Form.Item>
          <Form.Item name="timeout_s" label={t.waits} rules={[{ required: true }]}>
            <InputNumber min={1} max={MAX_WAIT_S} suffix={t.seconds} />
          </Form.Item>
          <Space>
            <Button type="primary" htmlType="submit" loading={record.isPending}>
              {t.record}
            </Button>
          </Space>
        </Form>
        {record.data && (
          <Alert
            type="success"
            showIcon
            role="status"
            title={t.recorded(
              Number(record.data.headers.get('x-tursiops-steps')),
              formatBytes(record.data.size),
            )}
          />
        )}
        <ErrorNotice error={record.error} />
      </div>
    </Card>
  )
}
