import { Card, Tooltip } from 'antd'
import type { SourceFigures } from '@/api/speculation'
import { useLocale } from '@/i18n'
import { useSpeculationText } from '@/i18n/speculation'
import { share } from '@/pages/evaluations/result/figures'
import { toneOf } from '@/ui/proposers'
import { formatCount, percent } from '@/ui/units'
import { useProposerName } from '@/ui/useProposerName'

/** Who guessed how much, and how much of it held. */
export function SourceBars({ sources }: { sources: SourceFigures[] }) {
  const text = useSpeculationText()
  const nameOf = useProposerName()
  const locale = useLocale()
  if (sources.length === 0) return null
  return (
    <Card size="small" title={text.panel.sources}>
      <table className="source-bars">
        <thead>
          <tr>
            <th scope="col">{text.panel.source}</th>
            <th scope="col" className="amount">
              {text.panel.draftedColumn}
            </th>
            <th scope="col" className="amount">
              {text.panel.acceptedColumn}
            </th>
            <th scope="col">
              <Tooltip title={text.panel.hitRateHint}>{text.panel.hitRate}</Tooltip>
            </th>
            <th scope="col" className="wide" aria-hidden />
          </tr>
        </thead>
        <tbody>
          {sources.map((one) => (
            <tr key={one.source} data-source={one.source} className={toneOf(one.source)}>
              <th scope="row">
                <Tooltip title={text.proposers[one.source]?.says ?? text.ofPlugin}>
                  <span className="inline">
                    <span className="guess-key guessed" aria-hidden />
                    {nameOf(one.source)}
                  </span>
                </Tooltip>
              </th>
              <td className="amount">{formatCount(one.drafted, locale)}</td>
              <td className="amount">{formatCount(one.accepted, locale)}</td>
              <td>{share(one.hit_rate, 0)}</td>
              <td className="wide" aria-hidden>
                <div className="meter-track">
                  <div className="meter-fill" style={{ width: `${percent(one.hit_rate ?? 0)}%` }} />
                </div>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  )
}
