import { Descriptions } from 'antd'
import { Link } from 'react-router'
import type { Deployment } from '@/api/types'
import { useText } from '@/i18n'
import { CodeBlock, CopyButton } from '@/ui/Copy'
import { baseUrl, curlChat, pythonChat } from '@/ui/requestCode'

export function EndpointTab({ deployment }: { deployment: Deployment }) {
  const t = useText()
  const request = {
    model: deployment.name,
    messages: [{ role: 'user', content: 'Say hello in one sentence.' }],
    params: { max_tokens: 64 },
  }
  return (
    <div className="stack">
      <p className="muted">
        {t.deployments.detail.endpointLead} <Link to="/keys?create=1">{t.deployments.detail.needKey}</Link>
      </p>
      <Descriptions
        size="small"
        bordered
        column={1}
        items={[
          {
            key: 'url',
            label: t.deployments.detail.baseUrl,
            children: <Copyable text={baseUrl()} name={t.deployments.detail.baseUrl} />,
          },
          {
            key: 'model',
            label: t.deployments.detail.modelName,
            children: <Copyable text={deployment.name} name={t.deployments.detail.modelName} />,
          },
        ]}
      />
      <strong>curl</strong>
      <CodeBlock code={curlChat(request)} name="curl" />
      <strong>{t.deployments.detail.openaiPython}</strong>
      <CodeBlock code={pythonChat(request)} name="Python" />
    </div>
  )
}

function Copyable({ text, name }: { text: string; name: string }) {
  return (
    <span className="digest">
      <code>{text}</code>
      <CopyButton text={text} name={name} />
    </span>
  )
}
