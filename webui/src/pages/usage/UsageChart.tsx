import { Tooltip } from 'antd'
import type { UsageRow } from '@/api/types'
import { useLocale, useText } from '@/i18n'
import { formatCount } from '@/ui/units'

/** One horizontal bar per group: cached, other prompt and generated tokens, on one scale. */
export function UsageChart({ rows }: { rows: UsageRow[] }) {
  const t = useText()
  const locale = useLocale()
  const top = Math.max(1, ...rows.map((row) => row.prompt_tokens + row.completion_tokens))
  const parts = (row: UsageRow) => [
    { key: 'cached', name: t.usage.cachedPrompt, value: row.cached_tokens },
    { key: 'prompt', name: t.usage.otherPrompt, value: row.prompt_tokens - row.cached_tokens },
    { key: 'completion', name: t.usage.completion, value: row.completion_tokens },
  ]
  return (
    <>
      <div className="bars">
        {rows.map((row) => (
          <div key={row.group ?? ''} className="bar-row">
            <span className="bar-label">{row.label || t.usage.noLabel}</span>
            <div className="bar">
              {parts(row).map(({ key, name, value }) => (
                <Tooltip key={key} title={`${name}: ${formatCount(value, locale)}`}>
                  <div className={`bar-part part-${key}`} style={{ width: `${(value / top) * 100}%` }} />
                </Tooltip>
              ))}
            </div>
            <span className="muted small">
              {formatCount(row.prompt_tokens + row.completion_tokens, locale)}
            </span>
          </div>
        ))}
      </div>
      <div className="legend small">
        <span className="key part-cached" /> {t.usage.cachedPrompt}
        <span className="key part-prompt" /> {t.usage.otherPrompt}
        <span className="key part-completion" /> {t.usage.completion}
      </div>
    </>
  )
}
