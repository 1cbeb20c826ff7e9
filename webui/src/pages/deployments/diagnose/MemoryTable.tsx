import { Button, Card, Table, Tooltip } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { useInstanceMemory } from '@/api/diagnosis'
import type { InstanceMemory } from '@/api/types'
import { useText } from '@/i18n'
import { useDiagnosisText } from '@/i18n/diagnosis'
import { DataTable } from '@/ui/DataTable'
import { Loaded } from '@/ui/Page'
import { formatBytes, percent } from '@/ui/units'

type Part = InstanceMemory['parts'][number]

export function MemoryTable({ instance }: { instance: string }) {
  const t = useText()
  const diagnosis = useDiagnosisText()
  const memory = useInstanceMemory(instance)
  return (
    <Card
      title={diagnosis.memory}
      size="small"
      extra={
        <Button size="small" loading={memory.isFetching} onClick={() => memory.refetch()}>
          {t.common.refresh}
        </Button>
      }
    >
      <Loaded query={memory}>{(found) => <Parts memory={found} />}</Loaded>
    </Card>
  )
}

function Parts({ memory }: { memory: InstanceMemory }) {
  const text = useDiagnosisText()
  const columns: ColumnsType<Part> = [
    { title: text.part, render: (_, one) => text.parts[one.part] ?? one.part },
    { title: text.bytes, align: 'right', render: (_, one) => <Size part={one} /> },
    {
      title: text.planned,
      align: 'right',
      render: (_, one) => (one.planned === null ? '–' : formatBytes(one.planned)),
    },
    {
      title: text.share,
      align: 'right',
      render: (_, one) => `${percent(memory.total > 0 ? one.bytes / memory.total : 0)} %`,
    },
  ]
  return (
    <div className="stack" data-testid="memory">
      <span className="muted">{text.memoryLead(memory.device, memory.dtype, memory.kv_cache_dtype)}</span>
      <DataTable
        rowKey="part"
        size="small"
        columns={columns}
        dataSource={memory.parts}
        summary={() => (
          <Table.Summary.Row>
            <Table.Summary.Cell index={0}>
              <strong>{text.total}</strong>
            </Table.Summary.Cell>
            <Table.Summary.Cell index={1} align="right">
              <strong>{formatBytes(memory.total)}</strong>
            </Table.Summary.Cell>
            <Table.Summary.Cell index={2} align="right">
              {formatBytes(memory.planned_total)}
            </Table.Summary.Cell>
            <Table.Summary.Cell index={3} />
          </Table.Summary.Row>
        )}
      />
      <span className="muted small">
        {text.processes(formatBytes(memory.process.core_resident), formatBytes(memory.process.api_resident))}
      </span>
    </div>
  )
}

function Size({ part }: { part: Part }) {
  const text = useDiagnosisText()
  if (part.measured) return formatBytes(part.bytes)
  return <Tooltip title={text.computed}>{`≈ ${formatBytes(part.bytes)}`}</Tooltip>
}
