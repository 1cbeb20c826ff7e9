import { Card, Tooltip } from 'antd'
import type { ReactNode } from 'react'
import { Link } from 'react-router'
import type { Overview } from '@/api/types'
import { useLocale, useText } from '@/i18n'
import { Sparkline } from '@/ui/Sparkline'
import { formatCount, formatMs, formatRate, formatSeconds } from '@/ui/units'

export function TrafficCard({ traffic }: { traffic: Overview['traffic'] }) {
  const t = useText()
  const locale = useLocale()
  const window = t.overview.window(formatSeconds(traffic.window_s))
  return (
    <Card title={t.overview.traffic} extra={<span className="muted">{window}</span>}>
      <div className="figures">
        <Figure name={t.overview.requests} value={formatCount(traffic.requests, locale)} hint={window} />
        <Figure
          name={t.overview.failed}
          value={formatCount(traffic.failed, locale)}
          hint={`${t.overview.failedHint} (${window})`}
          bad={traffic.failed > 0}
        />
        <Figure
          name={t.overview.rejected}
          value={formatCount(traffic.rejected, locale)}
          hint={`${t.overview.rejectedHint} (${window})`}
        />
        <Figure
          name={t.overview.tokensPerS}
          value={formatRate(traffic.tokens_per_s)}
          unit={t.overview.tokensUnit}
          hint={window}
        />
        <Figure
          name={`${t.overview.ttft} ${t.overview.p50}`}
          value={msOrDash(traffic.ttft_ms.p50)}
          hint={t.overview.ttftHint}
        />
        <Figure
          name={`${t.overview.ttft} ${t.overview.p95}`}
          value={msOrDash(traffic.ttft_ms.p95)}
          hint={t.overview.ttftHint}
        />
      </div>
      {traffic.requests === 0 ? (
        <p className="muted">
          {t.overview.noTraffic} <Link to="/playground">{t.nav.playground}</Link>
        </p>
      ) : (
        <>
          <Sparkline label={t.overview.requestsOverTime} points={traffic.series.map((one) => one.requests)} />
          <div className="muted small">{t.overview.requestsOverTime}</div>
          <Sparkline
            label={t.overview.tokensOverTime}
            points={traffic.series.map((one) => one.completion_tokens)}
            tone="second"
          />
          <div className="muted small">{t.overview.tokensOverTime}</div>
        </>
      )}
    </Card>
  )
}

function msOrDash(ms: number | null): string {
  return ms === null ? '–' : formatMs(ms)
}

function Figure(props: { name: ReactNode; value: string; unit?: string; hint: string; bad?: boolean }) {
  return (
    <Tooltip title={props.hint}>
      <div className="figure">
        <span className="muted small">{props.name}</span>
        <span className={props.bad ? 'figure-value bad' : 'figure-value'}>
          {props.value}
          {props.unit && <small> {props.unit}</small>}
        </span>
      </div>
    </Tooltip>
  )
}
