import { Card, Collapse, Form, InputNumber } from 'antd'
import type { Scheme } from '@/api/quantization'
import type { JsonSchema } from '@/api/types'
import { useSaid } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { SchemaFields } from '@/pages/deployments/fields/SchemaFields'
import { ASKED_ELSEWHERE } from './quantizeForm'

/** Of each chosen scheme: the gate that its version must pass, and the options that its JSON Schema names. */
export function SchemeOptions({ chosen }: { chosen: Scheme[] }) {
  const text = useQuantizeText()
  const said = useSaid()
  if (chosen.length === 0) return null
  return (
    <Card title={text.gate} size="small">
      <p className="muted">{text.gateHint}</p>
      {chosen.map((scheme) => (
        // biome-ignore lint/a11y/useSemanticElements: a fieldset's legend cannot be laid out like the page's headings
        <div key={scheme.name} role="group" aria-label={said(scheme.label)} className="scheme-options">
          <h2 className="form-part">{said(scheme.label)}</h2>
          <GateFields scheme={scheme} />
          <Collapse
            size="small"
            ghost
            items={[
              {
                key: 'advanced',
                label: text.advanced,
                children: <SchemaFields schema={ownOptions(scheme)} path={['options', scheme.name]} />,
              },
            ]}
          />
        </div>
      ))}
    </Card>
  )
}

/** A field per limit; empty: the scheme's own, which is shown. Shares are asked for in percent. */
function GateFields({ scheme }: { scheme: Scheme }) {
  const text = useQuantizeText()
  return (
    <div className="field-grid">
      {FIGURES.map((name) => {
        const inPercent = SHARES.includes(name)
        const limit = scheme.gate[name]
        return (
          <Form.Item
            key={name}
            name={['gates', scheme.name, name]}
            label={text.limits[name] ?? text.metrics[name] ?? name}
            {...(inPercent ? PERCENT : {})}
          >
            <InputNumber
              min={0}
              step={STEPS[name]}
              placeholder={limit === undefined ? text.noLimit : placeholder(limit, inPercent)}
              className="full-width"
            />
          </Form.Item>
        )
      })}
    </div>
  )
}

const FIGURES = ['perplexity_ratio', 'same_top', 'kl', 'fallbacks']
const SHARES = ['same_top']
const STEPS: Record<string, number> = { perplexity_ratio: 0.005, same_top: 0.5, kl: 0.001, fallbacks: 1 }
const placeholder = (limit: number, inPercent: boolean) =>
  String(Number((inPercent ? limit * 100 : limit).toFixed(3)))
const PERCENT = {
  getValueProps: (value?: number) => ({ value: value === undefined ? undefined : value * 100 }),
  normalize: (value: number | null) => (value === null ? undefined : value / 100),
}

function ownOptions({ options_schema: schema }: Scheme): JsonSchema {
  const own = Object.entries(schema.properties ?? {}).filter(([name]) => !ASKED_ELSEWHERE.includes(name))
  return { ...schema, properties: Object.fromEntries(own) }
}
