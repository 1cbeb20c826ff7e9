import { CheckCircleFilled } from '@ant-design/icons'
import { Button, Card } from 'antd'
import { Link } from 'react-router'
import type { Overview } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { Status } from '@/ui/Status'
import { concernsOf } from './attention'

/** What wants a look, each with the way to it; or the sentence that nothing does, and what it speaks of. */
export function AttentionCard({ data }: { data: Overview }) {
  const t = useText()
  const said = useSaid()
  const concerns = concernsOf(data, t)
  const moreJobs = data.jobs.failed_24h - data.jobs.failed.length
  return (
    <Card title={t.overview.attention}>
      {concerns.length > 0 && (
        <ul className="rows">
          {concerns.map((one) => (
            <li key={one.key}>
              <div className="row-head">
                <Link to={one.to}>{one.kind === t.overview.job ? said(one.name) : one.name}</Link>
                <span className="muted small">{one.kind}</span>
                <Status state={one.state} />
              </div>
              <div className="muted">{said(one.reason)}</div>
            </li>
          ))}
          {moreJobs > 0 && (
            <li>
              <Link to="/jobs?state=errored">{t.overview.moreFailed(moreJobs)}</Link>
            </li>
          )}
        </ul>
      )}
      {concerns.length === 0 && (
        <p>
          <CheckCircleFilled className="tone-ok" /> {t.overview.calm}
        </p>
      )}
      {data.deployments.total === 0 && (
        <>
          <p className="muted">{t.overview.noDeployments}</p>
          <Link to="/deployments/new">
            <Button>{t.deployments.create}</Button>
          </Link>
        </>
      )}
    </Card>
  )
}
