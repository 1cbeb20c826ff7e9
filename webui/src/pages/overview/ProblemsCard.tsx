import { CheckCircleFilled } from '@ant-design/icons'
import { Button, Card } from 'antd'
import { Link } from 'react-router'
import type { Overview } from '@/api/types'
import { useText } from '@/i18n'
import { Status } from '@/ui/Status'

export function ProblemsCard({ deployments }: { deployments: Overview['deployments'] }) {
  const t = useText()
  const { problems, total } = deployments
  return (
    <Card title={t.overview.problems} extra={<Link to="/deployments">{t.overview.seeAll}</Link>}>
      {problems.length > 0 && (
        <ul className="rows">
          {problems.map((one) => (
            <li key={one.id}>
              <div className="row-head">
                <Link to={`/deployments/${one.id}`}>{one.name}</Link>
                <Status state={one.state} />
              </div>
              <div className="muted">{one.reason}</div>
            </li>
          ))}
        </ul>
      )}
      {problems.length === 0 && total > 0 && (
        <p>
          <CheckCircleFilled className="tone-ok" /> {t.overview.allReady}
        </p>
      )}
      {total === 0 && (
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
