import { Card, Descriptions } from 'antd'
import type { ResultDoc } from '@/api/evaluationTypes'
import { useEvaluationText } from '@/i18n/evaluations'
import { CodeBlock, Digest } from '@/ui/Copy'
import { Time } from '@/ui/Time'
import { formatSeconds } from '@/ui/units'
import { figure, share } from './figures'

/** Where and with what it was measured: enough to do it again. */
export function EnvironmentCard({ result }: { result: ResultDoc }) {
  const all = useEvaluationText()
  const text = all.environment
  const { dataset, spec } = result
  const took = result.ended_at ? (Date.parse(result.ended_at) - Date.parse(result.started_at)) / 1_000 : null
  const tokens = (name: 'prompt' | 'output') => {
    const lengths = dataset.lengths[name]
    return lengths ? text.tokens(figure(lengths.mean), figure(lengths.p99)) : '–'
  }
  const items = [
    { key: 'started', label: text.started, children: <Time at={result.started_at || null} absent="–" /> },
    { key: 'took', label: text.took, children: took === null ? '–' : formatSeconds(took) },
    {
      key: 'seed',
      label: text.seed,
      children: <Digest value={String(result.seed)} name={text.seed} length={20} />,
    },
    { key: 'endpoint', label: text.endpoint, children: spec?.endpoint?.url ?? '–' },
    { key: 'model', label: text.model, children: spec?.endpoint?.model || '–' },
    { key: 'dataset', label: text.dataset, children: all.form.datasets[spec?.dataset?.kind ?? ''] ?? '–' },
    { key: 'prompt', label: text.prompt, children: tokens('prompt') },
    { key: 'output', label: text.output, children: tokens('output') },
    { key: 'load', label: text.load, children: all.form.loads[spec?.load?.kind ?? ''] ?? '–' },
    { key: 'requests', label: text.requests, children: spec?.min_requests ?? '–' },
    { key: 'hits', label: text.hitRate, children: share(dataset.expected_hit_rate) },
    { key: 'duplicates', label: text.duplicates, children: dataset.duplicates },
    {
      key: 'hash',
      label: text.hash,
      children: dataset.sha256 ? <Digest value={dataset.sha256} name={text.hash} /> : '–',
    },
    ...flat(measuredOn(result)).map(({ name, value }) => ({
      key: `environment.${name}`,
      label: name
        .split(' ')
        .map((word) => text.words[word] ?? word.replaceAll('_', ' '))
        .join(' '),
      children: <span className="breakable">{value}</span>,
    })),
  ]
  const known = items.filter(({ children }) => children !== '–')
  return (
    <Card size="small" title={all.detail.environmentTitle}>
      <div className="stack">
        <Descriptions size="small" bordered column={{ xs: 1, md: 2, xl: 3 }} items={known} />
        {spec && (
          <details>
            <summary>{all.detail.settings}</summary>
            <CodeBlock code={JSON.stringify(spec, null, 2)} name={all.detail.settings} />
          </details>
        )}
      </div>
    </Card>
  )
}

/** The endpoint stands in rows of its own. */
function measuredOn({ environment }: ResultDoc): Record<string, unknown> {
  const { endpoint: _endpoint, ...others } = environment
  return others
}

/** One row a value: {client: {python: "3.11"}} is "client python". */
export function flat(value: Record<string, unknown>, before = ''): { name: string; value: string }[] {
  return Object.entries(value).flatMap(([name, one]) => {
    const whole = before ? `${before} ${name}` : name
    if (one === null || one === undefined || one === '') return []
    if (Array.isArray(one)) {
      return one.length === 0 ? [] : [{ name: whole, value: one.map((each) => text(each)).join(', ') }]
    }
    if (typeof one === 'object') return flat(one as Record<string, unknown>, whole)
    return [{ name: whole, value: text(one) }]
  })
}

function text(value: unknown): string {
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}
