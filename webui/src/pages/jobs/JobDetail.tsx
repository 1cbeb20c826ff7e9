import { Alert, Card, Descriptions } from 'antd'
import { Link, useParams } from 'react-router'
import { useVersion } from '@/api/models'
import { useJob } from '@/api/operations'
import type { Job } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { CodeBlock } from '@/ui/Copy'
import { JobProgress } from '@/ui/JobProgress'
import { LogView } from '@/ui/LogView'
import { Loaded, Page } from '@/ui/Page'
import { Status } from '@/ui/Status'
import { Time } from '@/ui/Time'
import { ComparisonReport } from './ComparisonReport'
import { DomainTokensReport } from './DomainTokensReport'
import { JobActions } from './JobActions'
import { kindName, tookText } from './jobText'
import { QuantizationNote } from './QuantizationNote'

/** Kinds whose report has a view of its own. */
const SHOWN_AS_A_PAGE = new Set(['registry.compare', 'registry.domain_tokens'])

export function JobDetail() {
  const t = useText()
  const said = useSaid()
  const quantize = useQuantizeText()
  const { id = '' } = useParams()
  const job = useJob(id)
  const cancelEffect = job.data?.kind === 'quantization.make' ? quantize.cancelEffect : undefined
  return (
    <Page
      title={job.data ? said(job.data.title) : t.jobs.title}
      parent={{ title: t.jobs.title, to: '/jobs' }}
      beside={job.data && <Status state={job.data.state} />}
      lead={job.data && said(job.data.reason)}
      actions={job.data && <JobActions job={job.data} size="middle" cancelEffect={cancelEffect} />}
    >
      <Loaded query={job}>
        {(data) => (
          <div className="stack">
            <Outcome job={data} />
            <JobProgress job={data} />
            <Facts job={data} />
            {data.kind === 'quantization.make' && <QuantizationNote job={data.id} />}
            <Card title={t.common.log} size="small">
              <LogView path={`jobs/${data.id}/log`} name={data.title} />
            </Card>
            {data.kind === 'registry.compare' && data.state === 'succeeded' && (
              <ComparisonReport job={data} />
            )}
            {data.kind === 'registry.domain_tokens' && data.state === 'succeeded' && (
              <DomainTokensReport key={data.id} job={data} />
            )}
            {!SHOWN_AS_A_PAGE.has(data.kind) && Object.keys(data.report).length > 0 && (
              <Card title={t.jobs.report} size="small">
                <CodeBlock code={JSON.stringify(data.report, null, 2)} name={t.jobs.report} />
              </Card>
            )}
          </div>
        )}
      </Loaded>
    </Page>
  )
}

function Outcome({ job }: { job: Job }) {
  const t = useText()
  const said = useSaid()
  if (job.state !== 'errored' && job.state !== 'rejected') return null
  const hint = job.error.hint || (job.state === 'errored' ? t.jobs.retryHint : t.jobs.rejectedHint)
  return (
    <Alert
      type={job.state === 'errored' ? 'error' : 'warning'}
      showIcon
      title={said(job.error.message || job.reason)}
      description={`${t.jobs.nextStep}: ${said(hint)}`}
    />
  )
}

function Facts({ job }: { job: Job }) {
  const t = useText()
  const items = [
    { key: 'kind', label: t.jobs.kind, children: kindName(job.kind, t) },
    { key: 'subject', label: t.jobs.subject, children: <Subject job={job} /> },
    { key: 'attempt', label: t.jobs.attempt, children: t.jobs.attemptOf(job.attempt, job.max_attempts) },
    { key: 'node', label: t.jobs.node, children: job.node_name || '–' },
    { key: 'by', label: t.jobs.requestedBy, children: job.requested_by ?? '–' },
    { key: 'created', label: t.common.created, children: <Time at={job.created_at} /> },
    { key: 'started', label: t.jobs.started, children: <Time at={job.started_at} absent="–" /> },
    { key: 'finished', label: t.jobs.finished, children: <Time at={job.finished_at} absent="–" /> },
    { key: 'took', label: t.jobs.took, children: tookText(job) },
  ]
  return <Descriptions size="small" bordered column={{ xs: 1, sm: 2, lg: 3 }} items={items} />
}

function Subject({ job }: { job: Job }) {
  const t = useText()
  const isVersion = job.subject_type === 'version' && job.subject_id !== null
  const version = useVersion(isVersion ? (job.subject_id ?? undefined) : undefined)
  if (job.subject_type === 'evaluation_run' && job.subject_id) {
    return <Link to={`/evaluations/runs/${job.subject_id}`}>{t.jobs.openEvaluation}</Link>
  }
  if (!isVersion) return job.subject_type || '–'
  if (!version.data) return `${job.subject_type} ${job.subject_id?.slice(0, 8)}`
  return (
    <Link to={`/models/${version.data.model}?version=${version.data.number}`}>
      {`${version.data.model_name} v${version.data.number}`}
    </Link>
  )
}
