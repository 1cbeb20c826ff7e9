import { Card } from 'antd'
import { Link } from 'react-router'
import type { Job } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { JobProgress } from '@/ui/JobProgress'
import { Status } from '@/ui/Status'
import { Time } from '@/ui/Time'

export function RecentJobsCard({ jobs }: { jobs: Job[] }) {
  const t = useText()
  const said = useSaid()
  return (
    <Card title={t.overview.recentJobs} extra={<Link to="/jobs">{t.overview.seeAll}</Link>}>
      {jobs.length === 0 && <p className="muted">{t.overview.noJobs}</p>}
      <ul className="rows">
        {jobs.map((job) => (
          <li key={job.id}>
            <div className="row-head">
              <Link to={`/jobs/${job.id}`}>{said(job.title)}</Link>
              <span className="muted small">
                <Time at={job.created_at} />
              </span>
              <Status state={job.state} reason={job.reason} />
            </div>
            <JobProgress job={job} />
          </li>
        ))}
      </ul>
    </Card>
  )
}
