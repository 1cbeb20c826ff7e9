import { Table, Tooltip } from 'antd'
import type { Usage, UsageNumbers, UsageRow } from '@/api/types'
import { useLocale, useText } from '@/i18n'
import { DataTable } from '@/ui/DataTable'
import { formatCount } from '@/ui/units'

export function UsageTable({ usage, groupName }: { usage: Usage; groupName: string }) {
  const t = useText()
  const locale = useLocale()
  const columns: { key: keyof UsageNumbers; title: string; hint?: string }[] = [
    { key: 'requests', title: t.usage.requests },
    { key: 'rejected', title: t.usage.rejected, hint: t.usage.rejectedHint },
    { key: 'failed', title: t.usage.failed, hint: t.usage.failedHint },
    { key: 'prompt_tokens', title: t.usage.prompt },
    { key: 'cached_tokens', title: t.usage.cached },
    { key: 'completion_tokens', title: t.usage.completion },
  ]
  return (
    <DataTable<UsageRow>
      rowKey={(row) => row.group ?? ''}
      dataSource={usage.rows}
      columns={[
        { title: groupName, render: (_, row) => row.label || t.usage.noLabel },
        ...columns.map(({ key, title, hint }) => ({
          title: hint ? <Tooltip title={hint}>{title}</Tooltip> : title,
          showSorterTooltip: !hint,
          align: 'right' as const,
          sorter: (a: UsageRow, b: UsageRow) => a[key] - b[key],
          render: (_: unknown, row: UsageRow) => formatCount(row[key], locale),
        })),
      ]}
      summary={() => (
        <Table.Summary.Row>
          <Table.Summary.Cell index={0}>
            <strong>{t.usage.total}</strong>
          </Table.Summary.Cell>
          {columns.map(({ key }, index) => (
            <Table.Summary.Cell key={key} index={index + 1} align="right">
              <strong>{formatCount(usage.totals[key], locale)}</strong>
            </Table.Summary.Cell>
          ))}
        </Table.Summary.Row>
      )}
    />
  )
}
