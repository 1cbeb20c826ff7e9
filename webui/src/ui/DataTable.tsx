import { Table, type TableProps } from 'antd'
import { useText } from '@/i18n'

/**
 * The console's one kind of table. No name, size or date breaks: cells do not wrap but for `cell-text`, which holds
 * sentences and gives way where the window is narrow. A table that is still too wide scrolls in itself.
 */
export function DataTable<Row extends object>({ expandable, ...props }: TableProps<Row>) {
  const t = useText()
  return (
    <Table<Row>
      rowKey="id"
      className="data-table"
      pagination={false}
      scroll={{ x: true }}
      expandable={
        expandable && {
          columnTitle: <span className="visually-hidden">{t.common.details}</span>,
          ...expandable,
        }
      }
      {...props}
    />
  )
}
