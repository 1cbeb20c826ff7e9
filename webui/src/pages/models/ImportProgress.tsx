import { Link } from 'react-router'
import { useJob } from '@/api/operations'
import { useText } from '@/i18n'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { JobProgress } from '@/ui/JobProgress'
import { StatusLine } from '@/ui/Status'

export function ImportProgress({ jobId }: { jobId: string }) {
  const t = useText()
  const job = useJob(jobId)
  if (job.error) return <ErrorNotice error={job.error} />
  if (!job.data) return null
  return (
    <div>
      <StatusLine state={job.data.state} reason={job.data.reason} />{' '}
      <Link to={`/jobs/${jobId}`}>{t.models.drawer.watch}</Link>
      <JobProgress job={job.data} />
    </div>
  )
}
