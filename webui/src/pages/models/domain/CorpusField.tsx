import { UploadOutlined } from '@ant-design/icons'
import { Button, Form, Select, Upload } from 'antd'
import type { Rule } from 'antd/es/form'
import { useAddCorpus, useCorpora } from '@/api/domainTokens'
import { useLocale } from '@/i18n'
import { useDomainTokensText } from '@/i18n/domainTokens'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { formatBytes, formatCount } from '@/ui/units'

/** The team's texts, and a way to add one, which is then chosen. */
export function CorpusField({ rules }: { rules?: Rule[] }) {
  const text = useDomainTokensText()
  const locale = useLocale()
  const form = Form.useFormInstance()
  const corpora = useCorpora()
  const add = useAddCorpus()
  const known = corpora.data?.results ?? []
  return (
    <>
      <Form.Item name="corpus" label={text.corpus} extra={rules ? undefined : text.corpusHint} rules={rules}>
        <Select
          loading={corpora.isPending}
          options={[
            { value: '', label: text.corpusNone },
            ...known.map((one) => ({
              value: one.id,
              label: text.corpusOption(one.name, formatBytes(one.size), formatCount(one.lines, locale)),
            })),
          ]}
        />
      </Form.Item>
      <Form.Item>
        <Upload
          accept=".txt,.md,.jsonl,text/plain"
          showUploadList={false}
          beforeUpload={(file) => {
            add.mutate(file, { onSuccess: (corpus) => form.setFieldValue('corpus', corpus.id) })
            return Upload.LIST_IGNORE
          }}
        >
          <Button icon={<UploadOutlined />} loading={add.isPending}>
            {text.upload}
          </Button>
        </Upload>
      </Form.Item>
      <ErrorNotice error={add.error} />
    </>
  )
}
