import { FileTextOutlined } from '@ant-design/icons'
import { Button, Form, Input, Upload } from 'antd'
import { useDomainTokensText } from '@/i18n/domainTokens'
import { linesOfFile, termsOf } from './terms'

/** A text field of terms, which a file can fill. Without a text to look in, it must hold one. */
export function TermsField() {
  const text = useDomainTokensText()
  const form = Form.useFormInstance()
  const count = termsOf(Form.useWatch('terms', form) ?? '').length
  const fill = async (file: File) => {
    form.setFieldValue('terms', linesOfFile(file.name, await file.text()))
    await form.validateFields(['terms'])
  }
  return (
    <Form.Item
      label={text.terms}
      extra={
        <span className="inline">
          {text.termsHint}
          <Upload
            accept=".txt,.csv,text/plain,text/csv"
            showUploadList={false}
            beforeUpload={(file) => {
              fill(file)
              return Upload.LIST_IGNORE
            }}
          >
            <Button size="small" icon={<FileTextOutlined />}>
              {text.fromFile}
            </Button>
          </Upload>
          {count > 0 && <span>{text.termsCount(count)}</span>}
        </span>
      }
    >
      <Form.Item
        name="terms"
        noStyle
        dependencies={['corpus', 'candidates']}
        rules={[
          ({ getFieldValue }) => ({
            validator: async (_, value: string) => {
              const looks = getFieldValue('corpus') && getFieldValue('candidates') > 0
              if (termsOf(value).length === 0 && !looks) throw new Error(text.nothing)
            },
          }),
        ]}
      >
        <Input.TextArea
          rows={8}
          aria-label={text.terms}
          placeholder={'quantitative easing\nEBITDA\n市盈率'}
        />
      </Form.Item>
    </Form.Item>
  )
}
