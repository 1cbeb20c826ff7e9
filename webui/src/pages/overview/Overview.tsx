import { Card } from 'antd'
import { useOverview } from '@/api/operations'
import type { Overview as OverviewData } from '@/api/types'
import { useText } from '@/i18n'
import { Loaded, Page } from '@/ui/Page'
import { AttentionCard } from './AttentionCard'
import { Checklist } from './Checklist'
import { HealthStrip } from './HealthStrip'
import { NodesCard } from './NodesCard'
import { RecentJobsCard } from './RecentJobsCard'
import { TrafficCard } from './TrafficCard'

export function Overview() {
  const t = useText()
  const overview = useOverview()
  return (
    <Page title={t.overview.title}>
      <Checklist />
      <Loaded query={overview} rows={10}>
        {(data) => <Content data={data} />}
      </Loaded>
    </Page>
  )
}

function Content({ data }: { data: OverviewData }) {
  return (
    <>
      <Card size="small" className="strip">
        <HealthStrip data={data} />
      </Card>
      <div className="grid-2">
        <TrafficCard traffic={data.traffic} />
        <AttentionCard data={data} />
        <NodesCard nodes={data.nodes} />
        <RecentJobsCard jobs={data.jobs.recent} />
      </div>
    </>
  )
}
