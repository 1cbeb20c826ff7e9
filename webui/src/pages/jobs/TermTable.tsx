import type { ColumnsType } from 'antd/es/table'
import type { Key } from 'react'
import type { DomainTokensReport, TermRow } from '@/api/domainTokens'
import { useLocale } from '@/i18n'
import { useDomainTokensText } from '@/i18n/domainTokens'
import { DataTable } from '@/ui/DataTable'
import { formatCount } from '@/ui/units'

interface Props {
  found: DomainTokensReport
  chosen: Key[]
  /** Absent: nothing can be chosen any more. */
  onChosen?: (terms: Key[]) => void
}

/** A row for each term, those that save most first. */
export function TermTable({ found, chosen, onChosen }: Props) {
  const text = useDomainTokensText()
  const locale = useLocale()
  const number = (value: number) => formatCount(value, locale)
  const columns: ColumnsType<TermRow> = [
    { title: text.term, dataIndex: 'term' },
    { title: text.before, dataIndex: 'pieces', align: 'right', sorter: (a, b) => a.pieces - b.pieces },
  ]
  if (found.saving) {
    columns.push(
      {
        title: text.count,
        align: 'right',
        sorter: (a, b) => (a.count ?? 0) - (b.count ?? 0),
        render: (_, row) => number(row.count ?? 0),
      },
      {
        title: text.saved,
        align: 'right',
        sorter: (a, b) => (a.saved ?? 0) - (b.saved ?? 0),
        render: (_, row) => number(row.saved ?? 0),
      },
    )
  }
  columns.push({ title: text.ids, align: 'right', render: (_, row) => row.ids.join(', ') })
  return (
    <>
      {found.terms.length < found.terms_total && (
        <span className="muted">{text.shownOf(number(found.terms.length), number(found.terms_total))}</span>
      )}
      <DataTable<TermRow>
        size="small"
        rowKey="term"
        columns={columns}
        dataSource={found.terms}
        pagination={{ pageSize: 20, hideOnSinglePage: true, showSizeChanger: false }}
        rowSelection={
          onChosen && {
            selectedRowKeys: chosen,
            onChange: onChosen,
            preserveSelectedRowKeys: true,
            // antd's own box for all of them is drawn a second time, focusable, in a row hidden from readers.
            columnTitle: <span className="visually-hidden">{text.choose}</span>,
            getCheckboxProps: (row) => ({ 'aria-label': row.term }) as object,
          }
        }
      />
    </>
  )
}
