import { Alert, Card, Segmented, Tooltip } from 'antd'
import type { ReactNode } from 'react'
import { Link } from 'react-router'
import { type FollowedSpeculation, type SpeculationFigures, useSpeculation } from '@/api/speculation'
import type { Deployment } from '@/api/types'
import { useLocale, useSaid } from '@/i18n'
import { useSpeculationText } from '@/i18n/speculation'
import { share } from '@/pages/evaluations/result/figures'
import { Loaded } from '@/ui/Page'
import { Sparkline } from '@/ui/Sparkline'
import { formatCount, formatSeconds } from '@/ui/units'
import { useProposerName } from '@/ui/useProposerName'
import { useUrlState } from '@/ui/useUrlState'
import { InstanceTable } from './InstanceTable'
import { SourceBars } from './SourceBars'
import { costRatio, settingText, standingOf } from './standing'
import './speculation.css'

export function SpeculationTab({ deployment }: { deployment: Deployment }) {
  const query = useSpeculation(deployment.id)
  return (
    <Loaded query={query} rows={4}>
      {(followed) => <Panel deployment={deployment} followed={followed} />}
    </Loaded>
  )
}

function Panel({ deployment, followed }: { deployment: Deployment; followed: FollowedSpeculation }) {
  const { now, points } = followed
  const text = useSpeculationText()
  const said = useSaid()
  const nameOf = useProposerName()
  const standing = standingOf(now)
  const [window, setWindow] = useUrlState('window', standing === 'idle' ? 'start' : 'recent')
  const figures = window === 'start' ? now.since_start : now.recent
  const reasons = [...new Set(now.instances.map(({ reason }) => reason))].filter((reason) => reason !== '')
  const named = settingText(now.speculation, text.form, nameOf)
  return (
    <div className="stack" data-testid="speculation" data-standing={standing}>
      <div className="filters">
        <span>
          {text.panel.setting}:{' '}
          <strong>{now.draft_label ? text.panel.with(named, now.draft_label) : named}</strong>
        </span>
        <span className="grow" />
        {figures && standing !== 'never' && (
          <Segmented
            aria-label={text.panel.window}
            value={window}
            onChange={setWindow}
            options={[
              { value: 'recent', label: text.panel.recent(formatSeconds(now.recent?.window_s ?? 60)) },
              { value: 'start', label: text.panel.sinceStart },
            ]}
          />
        )}
      </div>
      <Alert
        type={standing === 'works' ? 'success' : 'info'}
        showIcon
        title={text.panel.why[standing]}
        action={
          standing === 'off' && <Link to={`/deployments/${deployment.id}/edit`}>{text.panel.turnOn}</Link>
        }
        description={reasons.map(said).join(' ') || undefined}
      />
      {figures && standing !== 'never' && (
        <>
          <Figures figures={figures} current={standing === 'works' && window !== 'start'} />
          <SourceBars sources={figures.sources} />
        </>
      )}
      {points.filter((point) => point !== null).length > 1 && (
        <Card size="small" title={text.panel.overTime}>
          <Sparkline label={text.panel.overTime} points={points} />
        </Card>
      )}
      {now.instances.length > 1 && <InstanceTable instances={now.instances} window={window} />}
    </div>
  )
}

/** `current`: the speed-up, which is of the newest passes, is of those that the other figures count. */
function Figures({ figures, current }: { figures: SpeculationFigures; current: boolean }) {
  const text = useSpeculationText().panel
  const locale = useLocale()
  const parts = current ? costRatio(figures) : null
  const count = (value: number) => formatCount(value, locale)
  return (
    <Card size="small">
      <div className="figures">
        <Figure name={text.speedup} hint={text.speedupHint} value={times(figures.speedup)}>
          {parts && text.formula(parts.hits.toFixed(2), parts.cost.toFixed(2))}
        </Figure>
        <Figure
          name={text.tokensPerStep}
          hint={text.tokensPerStepHint}
          value={two(figures.tokens_per_step)}
        />
        <Figure
          name={text.acceptanceLength}
          hint={text.acceptanceLengthHint}
          value={two(figures.acceptance_length)}
        >
          {figures.width > 0 && text.width(count(Math.round(figures.width)))}
        </Figure>
        <Figure name={text.share} hint={text.shareHint} value={share(figures.share_speculated, 0)}>
          {text.shareOf(count(figures.verified_steps), count(figures.steps))}
        </Figure>
        <Figure name={text.drafted} hint={text.draftedHint} value={count(figures.drafted_tokens)}>
          {text.accepted(count(figures.accepted_tokens))}
        </Figure>
        <Figure name={text.hitRate} hint={text.hitRateHint} value={share(figures.hit_rate, 0)} />
        <Figure name={text.saved} hint={text.savedHint} value={savedText(figures.saved_s)} />
      </div>
    </Card>
  )
}

const two = (value: number | null) => (value === null ? '–' : value.toFixed(2))
const times = (value: number | null) => (value === null ? '–' : `${value.toFixed(2)}×`)
/** Time lost is said as such. */
const savedText = (seconds: number) => (seconds < 0 ? `−${formatSeconds(-seconds)}` : formatSeconds(seconds))

function Figure(props: { name: string; hint: string; value: string; children?: ReactNode }) {
  return (
    <Tooltip title={props.hint}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: its meaning is told on focus, too */}
      <div className="figure" tabIndex={0}>
        <span className="muted small">{props.name}</span>
        <span className="figure-value">{props.value}</span>
        {props.children && <span className="muted small">{props.children}</span>}
      </div>
    </Tooltip>
  )
}
