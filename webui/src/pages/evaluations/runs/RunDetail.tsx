import { Alert, Button, Card, Descriptions } from 'antd'
import { Link, useParams } from 'react-router'
import { isEnded, type RunDetail, useRun } from '@/api/evaluations'
import { useSaid, useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { Loaded, Page } from '@/ui/Page'
import { Status } from '@/ui/Status'
import { Time } from '@/ui/Time'
import { formatSeconds } from '@/ui/units'
import { QualityView } from '../quality/QualityView'
import { VerdictTag } from '../result/DecisionTag'
import { ResultView } from '../result/ResultView'
import { NextAction } from './NextAction'
import { Regressions } from './Regressions'
import { RunActions } from './RunActions'
import { RunProgress } from './RunStatus'
import { tookSeconds } from './runText'
import '../evaluations.css'

export function RunDetailPage() {
  const text = useEvaluationText()
  const { id = '' } = useParams()
  const run = useRun(id)
  return (
    <Page
      title={run.data?.suite_name ?? text.runs.title}
      parent={{ title: text.runs.title, to: '/evaluations' }}
      beside={
        run.data && (
          <>
            <Status state={run.data.state} />
            {isEnded(run.data.state) && run.data.verdict !== '' && <VerdictTag verdict={run.data.verdict} />}
          </>
        )
      }
      actions={run.data && <RunActions run={run.data} />}
    >
      <Loaded query={run}>{(data) => <Content run={data} />}</Loaded>
    </Page>
  )
}

function Content({ run }: { run: RunDetail }) {
  const { load, quality } = run.results
  return (
    <div className="stack">
      <Outcome run={run} />
      <RunProgress run={run} />
      <Facts run={run} />
      <Regressions run={run} />
      {load && <ResultView result={load} next={(code) => <NextAction code={code} run={run} />} />}
      {quality && <QualityView run={run} result={quality} />}
    </div>
  )
}

/** Why it is where it is, and what to do; a run that completed says it by its result. */
function Outcome({ run }: { run: RunDetail }) {
  const text = useEvaluationText().detail
  const said = useSaid()
  const reason = said(run.reason)
  const measured = Object.keys(run.results).length > 0
  if (run.state === 'completed') {
    if (measured) return null
    return <Alert type="warning" showIcon title={reason || text.noResult} description={text.noResultNext} />
  }
  if (run.state === 'waiting' || run.state === 'queued') {
    return (
      <Alert
        type="info"
        showIcon
        title={reason || text.waiting}
        description={reason ? text.waiting : undefined}
      />
    )
  }
  if (run.state === 'running') {
    const done = run.results.load?.levels.length ?? 0
    return measured ? (
      <p className="muted run-note">{text.measuring(done + 1)}</p>
    ) : (
      <p className="muted run-note">{text.starting}</p>
    )
  }
  return (
    <Alert
      type={run.state === 'errored' ? 'error' : 'warning'}
      showIcon
      title={reason || text.noResult}
      description={
        measured ? text.incomplete : run.state === 'cancelled' ? text.cancelledNext : text.noResultNext
      }
      action={
        run.job && (
          <Link to={`/jobs/${run.job}`}>
            <Button size="small">{text.openJob}</Button>
          </Link>
        )
      }
    />
  )
}

function Facts({ run }: { run: RunDetail }) {
  const t = useText()
  const text = useEvaluationText()
  const took = tookSeconds(run)
  const { target } = run
  const items = [
    {
      key: 'target',
      label: text.runs.target,
      children:
        target.kind === 'deployment' && target.id ? (
          <Link to={`/deployments/${target.id}`}>{target.name}</Link>
        ) : (
          target.name
        ),
    },
    {
      key: 'version',
      label: text.runs.version,
      children:
        [run.version_label, run.revision && text.runs.revision(run.revision)].filter(Boolean).join(' · ') ||
        '–',
    },
    { key: 'suite', label: text.runs.suite, children: `${run.suite_name} v${run.suite_version}` },
    {
      key: 'by',
      label: text.runs.by,
      children: run.schedule ? (
        <Link to="/evaluations/schedules">{text.runs.bySchedule}</Link>
      ) : (
        (run.requested_by ?? '–')
      ),
    },
    { key: 'created', label: t.common.created, children: <Time at={run.created_at} /> },
    { key: 'took', label: t.jobs.took, children: took === null ? '–' : formatSeconds(took) },
    {
      key: 'baseline',
      label: text.gates.baseline,
      children: run.baseline ? (
        <Link to={`/evaluations/compare?runs=${run.baseline},${run.id}`}>{text.detail.compare}</Link>
      ) : (
        text.quality.noBaseline
      ),
    },
    {
      key: 'job',
      label: text.detail.job,
      children: run.job ? <Link to={`/jobs/${run.job}`}>{text.detail.openJob}</Link> : '–',
    },
  ]
  return (
    <Card size="small">
      <Descriptions size="small" column={{ xs: 1, sm: 2, lg: 4 }} items={items} />
    </Card>
  )
}
