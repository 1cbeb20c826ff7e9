import { ScheduleOutlined } from '@ant-design/icons'
import { Select } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { Link } from 'react-router'
import { JOBS_PER_PAGE, useJobs } from '@/api/operations'
import type { Job, JobState, Page as PageOf } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { DataTable } from '@/ui/DataTable'
import { EmptyState } from '@/ui/EmptyState'
import { JobProgress } from '@/ui/JobProgress'
import { Loaded, Page } from '@/ui/Page'
import { Status } from '@/ui/Status'
import { Time } from '@/ui/Time'
import { useUrlState } from '@/ui/useUrlState'
import { JobActions } from './JobActions'
import { kindName, tookText } from './jobText'

const STATES: JobState[] = [
  'queued',
  'running',
  'cancelling',
  'succeeded',
  'rejected',
  'errored',
  'cancelled',
]

export function JobList() {
  const t = useText()
  const [state, setState] = useUrlState('state')
  const [kind, setKind] = useUrlState('kind')
  const [page, setPage] = useUrlState('page', '1')
  const jobs = useJobs({ state, kind, page: Number(page) || 1 })
  const filtered = state !== '' || kind !== ''
  return (
    <Page title={t.jobs.title} lead={t.jobs.lead}>
      <div className="filters">
        <Select
          className="filter-select"
          aria-label={t.common.state}
          value={state}
          onChange={(choice) => {
            setPage('1')
            setState(choice)
          }}
          options={[
            { value: '', label: t.jobs.anyState },
            ...STATES.map((value) => ({ value, label: t.states[value] })),
          ]}
        />
        <Select
          className="filter-select"
          aria-label={t.jobs.kind}
          value={kind}
          onChange={(choice) => {
            setPage('1')
            setKind(choice)
          }}
          options={[
            { value: '', label: t.jobs.anyKind },
            ...Object.entries(t.jobs.kinds).map(([value, label]) => ({ value, label })),
          ]}
        />
      </div>
      <Loaded query={jobs}>
        {(data) =>
          data.count === 0 && !filtered ? (
            <EmptyState icon={<ScheduleOutlined />} title={t.jobs.emptyTitle} text={t.jobs.emptyText} />
          ) : (
            <JobTable jobs={data} page={Number(page) || 1} onPage={(next) => setPage(String(next))} />
          )
        }
      </Loaded>
    </Page>
  )
}

function JobTable({
  jobs,
  page,
  onPage,
}: {
  jobs: PageOf<Job>
  page: number
  onPage: (page: number) => void
}) {
  const t = useText()
  const said = useSaid()
  const columns: ColumnsType<Job> = [
    {
      title: t.common.name,
      render: (_, job) => (
        <>
          <Link to={`/jobs/${job.id}`}>{said(job.title)}</Link>
          <div className="muted small">{kindName(job.kind, t)}</div>
        </>
      ),
    },
    {
      title: t.common.state,
      render: (_, job) => (
        <>
          <Status state={job.state} />
          {job.reason && <div className="muted small cell-text">{said(job.reason)}</div>}
          <JobProgress job={job} />
        </>
      ),
    },
    { title: t.jobs.node, render: (_, job) => job.node_name || '–' },
    { title: t.common.created, render: (_, job) => <Time at={job.created_at} /> },
    { title: t.jobs.took, render: (_, job) => tookText(job) },
    { title: t.common.actions, render: (_, job) => <JobActions job={job} /> },
  ]
  return (
    <DataTable
      columns={columns}
      dataSource={jobs.results}
      locale={{ emptyText: t.jobs.noMatch }}
      pagination={{
        current: page,
        pageSize: JOBS_PER_PAGE,
        total: jobs.count,
        hideOnSinglePage: true,
        showSizeChanger: false,
        onChange: onPage,
      }}
    />
  )
}
