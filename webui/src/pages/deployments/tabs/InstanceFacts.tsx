import { Descriptions } from 'antd'
import type { Instance } from '@/api/types'
import { useLocale, useSaid, useText } from '@/i18n'
import { formatBytes, formatCount } from '@/ui/units'

/** What the engine says of itself, and why it runs where it runs. */
export function InstanceFacts({ instance }: { instance: Instance }) {
  const t = useText()
  const said = useSaid()
  const locale = useLocale()
  const facts = Object.entries(instance.facts)
  const { chosen, reason, rejected = [] } = instance.placement
  return (
    <div className="stack">
      {facts.length === 0 ? (
        <span className="muted">{t.deployments.detail.noFacts}</span>
      ) : (
        <Descriptions
          size="small"
          title={t.deployments.detail.facts}
          column={{ xs: 1, sm: 2, lg: 4 }}
          items={facts.map(([name, value]) => ({
            key: name,
            label: name,
            children: factText(name, value, locale),
          }))}
        />
      )}
      {(chosen || reason || rejected.length > 0) && (
        <div>
          <strong>{t.deployments.detail.placement}</strong>
          <ul className="placement">
            {(reason || chosen) && <li>{said(reason || chosen || '')}</li>}
            {rejected.map((one) => (
              <li key={one.node} className="muted">
                {`${one.node}: ${said(one.reason)}`}
              </li>
            ))}
          </ul>
        </div>
      )}
    </div>
  )
}

function factText(name: string, value: unknown, locale: string): string {
  if (typeof value === 'number' && name.endsWith('_bytes')) return formatBytes(value)
  if (typeof value === 'number')
    return Number.isInteger(value) ? formatCount(value, locale) : value.toPrecision(4)
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}
