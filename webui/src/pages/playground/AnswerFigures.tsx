import { Tooltip } from 'antd'
import { useLocale, useText } from '@/i18n'
import { formatCount, formatMs, formatRate } from '@/ui/units'
import type { Answer } from './frames'

/** How fast it came and what it took, each with its meaning on hover. */
export function AnswerFigures({ answer }: { answer: Answer }) {
  const t = useText()
  const locale = useLocale()
  const { timing, usage } = answer
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0
  return (
    <span className="figures-line small" data-testid="figures">
      {timing?.ttft_ms != null && (
        <Tooltip title={t.playground.ttftHint}>
          <span>
            {t.playground.ttft} <strong>{formatMs(timing.ttft_ms)}</strong>
          </span>
        </Tooltip>
      )}
      {timing?.tokens_per_s != null && (
        <Tooltip title={t.playground.speedHint}>
          <span>
            <strong>{formatRate(timing.tokens_per_s)}</strong> {t.overview.tokensUnit}
          </span>
        </Tooltip>
      )}
      {timing?.duration_ms != null && (
        <span>
          {t.playground.duration} <strong>{formatMs(timing.duration_ms)}</strong>
        </span>
      )}
      {usage && (
        <Tooltip title={t.playground.usageHint}>
          <span className="muted">
            {t.playground.usage(
              formatCount(usage.prompt_tokens, locale),
              formatCount(usage.completion_tokens, locale),
            )}
            {cached > 0 && ` (${t.playground.cached(formatCount(cached, locale))})`}
          </span>
        </Tooltip>
      )}
    </span>
  )
}
