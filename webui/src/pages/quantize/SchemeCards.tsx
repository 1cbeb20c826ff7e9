import { CheckCircleFilled, CloseCircleFilled, ExclamationCircleFilled } from '@ant-design/icons'
import { Checkbox, Tag } from 'antd'
import type { ReactNode } from 'react'
import type { Scheme, SchemePlan, SupportLevel } from '@/api/quantization'
import { useSaid } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { formatBytes } from '@/ui/units'
import { changeText } from './deltas'

interface Props {
  schemes: Scheme[]
  device: string
  /** What each would come to, as far as it is known. */
  plans: SchemePlan[]
  id?: string
  value?: string[]
  onChange?: (schemes: string[]) => void
}

/** A card for each scheme: what it does, what it is for, and what the target makes of it. Several can be chosen. */
export function SchemeCards({ schemes, device, plans, id, value = [], onChange }: Props) {
  const text = useQuantizeText()
  const toggle = (name: string, chosen: boolean) =>
    onChange?.(chosen ? [...value, name] : value.filter((one) => one !== name))
  return (
    // biome-ignore lint/a11y/useSemanticElements: antd's form item has no legend; its label names the group
    <div id={id} role="group" aria-label={text.schemes} className="scheme-cards">
      {schemes.map((scheme) => (
        <SchemeCard
          key={scheme.name}
          scheme={scheme}
          device={device}
          plan={plans.find((one) => one.scheme === scheme.name)}
          chosen={value.includes(scheme.name)}
          onChoose={(chosen) => toggle(scheme.name, chosen)}
        />
      ))}
    </div>
  )
}

function SchemeCard(props: {
  scheme: Scheme
  device: string
  plan: SchemePlan | undefined
  chosen: boolean
  onChoose: (chosen: boolean) => void
}) {
  const { scheme, device, plan, chosen, onChoose } = props
  const text = useQuantizeText()
  const said = useSaid()
  const support = scheme.support.find((one) => one.device === device)
  const kept: [string, string][] = [
    [text.weights, scheme.weights],
    [text.activations, scheme.activations],
    [text.kv, scheme.kv],
    [text.embedding, scheme.embedding],
  ]
  return (
    <div className={chosen ? 'scheme-card chosen' : 'scheme-card'} data-scheme={scheme.name}>
      <Checkbox checked={chosen} onChange={(change) => onChoose(change.target.checked)}>
        <strong>{said(scheme.label)}</strong>
      </Checkbox>
      <p>{said(scheme.explanation)}</p>
      <p className="muted">{said(scheme.best_for)}</p>
      <dl className="scheme-facts small">
        {kept
          .filter(([, how]) => how !== 'unchanged' && how !== '16 bits')
          .map(([name, how]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{said(how)}</dd>
            </div>
          ))}
      </dl>
      <div className="inline">
        {support && <SupportTag level={support.level} />}
        <Tag>{scheme.needs_data ? text.needsData : text.noData}</Tag>
        {plan && plan.base_bytes > 0 && (
          <span className="small">
            {text.expectedSize(formatBytes(plan.size_bytes), changeText(plan.base_bytes, plan.size_bytes))}
          </span>
        )}
      </div>
      {support && <p className="muted small">{said(support.reason)}</p>}
    </div>
  )
}

const LOOKS: Record<SupportLevel, { color: string; icon: ReactNode }> = {
  supported: { color: 'success', icon: <CheckCircleFilled /> },
  slow: { color: 'warning', icon: <ExclamationCircleFilled /> },
  unsupported: { color: 'error', icon: <CloseCircleFilled /> },
}

export function SupportTag({ level }: { level: SupportLevel }) {
  const text = useQuantizeText()
  const { color, icon } = LOOKS[level]
  return (
    <Tag color={color} icon={icon} className="status" data-support={level}>
      {text.levels[level]}
    </Tag>
  )
}
