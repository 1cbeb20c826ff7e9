import { CheckCircleFilled, CloseCircleFilled } from '@ant-design/icons'
import { Card, Spin } from 'antd'
import { useEstimate } from '@/api/deployments'
import type { Estimate, EstimateInput } from '@/api/types'
import { useLocale, useSaid, useText } from '@/i18n'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { formatCount } from '@/ui/units'
import { FitTable } from './FitTable'
import { MemoryBar } from './MemoryBar'

/** Whether it fits, why, and what would help, before anything is started. */
export function EstimatePanel({ input }: { input: EstimateInput | null }) {
  const t = useText()
  const estimate = useEstimate(input)
  return (
    <Card title={t.deployments.estimate.title} extra={estimate.isFetching && <Spin size="small" />}>
      <div aria-live="polite" aria-busy={estimate.isFetching}>
        {input === null && <p className="muted">{t.deployments.estimate.choose}</p>}
        <ErrorNotice error={estimate.error} onRetry={() => estimate.refetch()} />
        {input !== null && estimate.data && !estimate.error && <Verdict estimate={estimate.data} />}
        {input !== null && estimate.data && !estimate.error && (
          <FitTable input={input} node={estimate.data.node} />
        )}
      </div>
    </Card>
  )
}

function Verdict({ estimate }: { estimate: Estimate }) {
  const t = useText()
  const said = useSaid()
  const text = t.deployments.estimate
  const locale = useLocale()
  return (
    <div data-testid="estimate" data-fits={estimate.fits}>
      <p className={estimate.fits ? 'verdict tone-ok' : 'verdict tone-error'}>
        {estimate.fits ? <CheckCircleFilled /> : <CloseCircleFilled />}{' '}
        {estimate.fits ? text.fits : text.doesNotFit}
      </p>
      <p>{said(estimate.reason)}</p>
      <MemoryBar memory={estimate.memory} />
      {estimate.kv_tokens > 0 && <p>{text.kvTokens(formatCount(estimate.kv_tokens, locale))}</p>}
      {estimate.node && <p>{text.onNode(estimate.node)}</p>}
      {estimate.suggestions.length > 0 && (
        <>
          <strong>{text.suggestions}</strong>
          <ul>
            {estimate.suggestions.map((suggestion) => (
              <li key={suggestion}>{said(suggestion)}</li>
            ))}
          </ul>
        </>
      )}
      {estimate.rejected.length > 0 && (
        <>
          <strong>{text.rejected}</strong>
          <ul>
            {estimate.rejected.map(({ node, reason }) => (
              <li key={node}>
                <strong>{node}</strong>: {said(reason)}
              </li>
            ))}
          </ul>
        </>
      )}
      <p className="muted small">{text.source}</p>
    </div>
  )
}
