import { Alert } from 'antd'
import { useDeployments } from '@/api/deployments'
import type { NewApiKey } from '@/api/types'
import { useText } from '@/i18n'
import { CodeBlock } from '@/ui/Copy'
import { curlChat } from '@/ui/requestCode'

/** The one moment in which the secret is seen. */
export function NewSecret({ created }: { created: NewApiKey }) {
  const t = useText()
  const deployments = useDeployments()
  const model = created.allowed_models[0] ?? deployments.data?.results[0]?.name
  return (
    <div className="stack">
      <Alert type="warning" showIcon title={t.keys.secretOnce} />
      <div data-testid="secret">
        <CodeBlock code={created.secret} name={t.keys.secretLabel} />
      </div>
      {model && (
        <div>
          <strong>{t.keys.tryIt}</strong>
          <CodeBlock
            code={curlChat(
              { model, messages: [{ role: 'user', content: 'Hello!' }], params: {} },
              created.secret,
            )}
            name="curl"
          />
        </div>
      )}
    </div>
  )
}
