import { Alert, Card, Collapse, Tooltip } from 'antd'
import type { ReactNode } from 'react'
import { Link } from 'react-router'
import type { LayerProgress, Quantization } from '@/api/quantization'
import { useSaid } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { figure } from '@/pages/evaluations/result/figures'
import { JobActions } from '@/pages/jobs/JobActions'
import { JobProgress } from '@/ui/JobProgress'
import { LogView } from '@/ui/LogView'
import { Status } from '@/ui/Status'
import { formatSeconds } from '@/ui/units'
import { roughly } from './outcome'

/** A job at work: which layer, how well, how long still; its log, and the way to end it. */
export function RunningJob({ one }: { one: Quantization }) {
  const text = useQuantizeText()
  const said = useSaid()
  const { job, progress } = one
  const queued = job.state === 'queued'
  return (
    <Card
      size="small"
      title={<Link to={`/jobs/${job.id}`}>{said(one.scheme_label)}</Link>}
      extra={<JobActions job={job} cancelEffect={text.cancelEffect} />}
      data-testid="quantize-job"
      data-scheme={one.scheme}
    >
      <span className="inline">
        <Status state={job.state} />
        <span className="small">{progress ? (text.phases[progress.phase] ?? progress.phase) : ''}</span>
        <span className="muted small">{said(job.reason)}</span>
      </span>
      {!queued && <JobProgress job={job} />}
      {progress && <LayerFigures progress={progress} />}
      {progress && progress.resumed_at > 0 && (
        <Alert type="info" showIcon title={text.resumed(progress.resumed_at)} className="notice" />
      )}
      <Collapse
        size="small"
        ghost
        destroyOnHidden
        items={[
          {
            key: 'log',
            label: text.log,
            children: <LogView path={`jobs/${job.id}/log`} name={job.title} />,
          },
        ]}
      />
    </Card>
  )
}

/** Of the layers only while they are made; what was lost in them stands in the report afterwards. */
function LayerFigures({ progress }: { progress: LayerProgress }) {
  const text = useQuantizeText()
  const { layers_done: done, layers, loss } = progress
  return (
    <div className="figures">
      {layers > 0 && <Figure label={text.layers} value={text.layerOf(done, layers)} />}
      {loss !== null && <Figure label={<Hint text={text.lossHint}>{text.loss}</Hint>} value={figure(loss)} />}
      <Figure
        label={<Hint text={text.fallbacksHint}>{text.fallbacks}</Hint>}
        value={String(progress.fallbacks)}
        bad={progress.fallbacks > 0}
      />
      <Figure label={text.elapsed} value={formatSeconds(progress.elapsed_s)} />
      {progress.eta_s !== null && <Figure label={text.left} value={roughly(progress.eta_s)} />}
    </div>
  )
}

function Figure({ label, value, bad = false }: { label: ReactNode; value: string; bad?: boolean }) {
  return (
    <div className="figure">
      <span className="muted small">{label}</span>
      <span className={bad ? 'figure-value bad' : 'figure-value'}>{value}</span>
    </div>
  )
}

/** Words with their meaning on hover and focus. */
export function Hint({ text, children }: { text: string; children: ReactNode }) {
  return (
    <Tooltip title={text}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the hint must be reachable by keyboard */}
      <span tabIndex={0}>{children}</span>
    </Tooltip>
  )
}
