import { BarChartOutlined } from '@ant-design/icons'
import { Card, Segmented } from 'antd'
import { useUsage } from '@/api/operations'
import type { Usage, UsageGroup } from '@/api/types'
import { useLocale, useText } from '@/i18n'
import { EmptyState } from '@/ui/EmptyState'
import { Loaded, Page } from '@/ui/Page'
import { useUrlState } from '@/ui/useUrlState'
import { UsageChart } from './UsageChart'
import { UsageTable } from './UsageTable'

type Range = '1d' | '7d' | '30d' | '90d'
const RANGES: Range[] = ['1d', '7d', '30d', '90d']
const GROUPS: UsageGroup[] = ['day', 'deployment', 'key']
const HOUR_MS = 3_600_000

/** Begin of the range, on the hour, so that the same view is the same request for an hour. */
function sinceOf(range: Range): string {
  const hour = Math.floor(Date.now() / HOUR_MS) * HOUR_MS
  return new Date(hour - Number.parseInt(range, 10) * 24 * HOUR_MS).toISOString()
}

export function UsagePage() {
  const t = useText()
  const locale = useLocale()
  const [rangeText, setRange] = useUrlState('range', '7d')
  const [groupText, setGroup] = useUrlState('group', 'day')
  const range = RANGES.find((one) => one === rangeText) ?? '7d'
  const group = GROUPS.find((one) => one === groupText) ?? 'day'
  const since = sinceOf(range)
  const usage = useUsage({ since, group })
  const sinceText = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'short' }).format(
    new Date(since),
  )
  return (
    <Page title={t.usage.title} lead={t.usage.lead}>
      <div className="filters">
        <Segmented<Range>
          aria-label={t.usage.range}
          value={range}
          onChange={setRange}
          options={RANGES.map((value) => ({ value, label: t.usage.ranges[value] }))}
        />
        <Segmented<UsageGroup>
          aria-label={t.usage.group}
          value={group}
          onChange={setGroup}
          options={GROUPS.map((value) => ({ value, label: t.usage.groups[value] }))}
        />
      </div>
      <Loaded query={usage}>
        {(data) => <Content usage={data} group={group} source={t.usage.window(sinceText)} />}
      </Loaded>
    </Page>
  )
}

function Content({ usage, group, source }: { usage: Usage; group: UsageGroup; source: string }) {
  const t = useText()
  if (usage.rows.length === 0) {
    return <EmptyState icon={<BarChartOutlined />} title={t.usage.emptyTitle} text={t.usage.emptyText} />
  }
  return (
    <div className="stack">
      <Card size="small" title={t.usage.chart}>
        <UsageChart rows={usage.rows} />
      </Card>
      <UsageTable usage={usage} groupName={t.usage.groups[group]} />
      <p className="muted small">{source}</p>
    </div>
  )
}
