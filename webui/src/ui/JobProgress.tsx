import { Progress } from 'antd'
import type { Job } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { percent } from './units'

/** Bar and words of a job that still runs; nothing for one that has ended. */
export function JobProgress({ job }: { job: Job }) {
  const t = useText()
  const said = useSaid()
  if (job.state !== 'running' && job.state !== 'cancelling') return null
  return (
    <div className="job-progress">
      <Progress
        percent={percent(job.progress)}
        size="small"
        status="active"
        aria-label={`${t.jobs.progress}: ${said(job.title)}`}
      />
      {job.progress_text && <span className="muted small">{said(job.progress_text)}</span>}
    </div>
  )
}
