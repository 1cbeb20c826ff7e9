import { Button, Tag } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { useMayChange } from '@/api/session'
import { type Draft, useForgetDraft, useRecordDraft } from '@/api/speculation'
import { useSaid, useText } from '@/i18n'
import { useSpeculationText } from '@/i18n/speculation'
import { DataTable } from '@/ui/DataTable'
import { formatBytes, formatParameters } from '@/ui/units'
import { useAct } from '@/ui/useAct'
import { useProposerName } from '@/ui/useProposerName'

/** Versions that fit `target`; recorded ones are an edge of its lineage. */
export function FittingDrafts({ target, drafts }: { target: string; drafts: Draft[] }) {
  const t = useText()
  const text = useSpeculationText()
  const said = useSaid()
  const nameOf = useProposerName()
  const columns: ColumnsType<Draft> = [
    {
      title: text.drafts.draft,
      render: (_, draft) => (
        <div className="cell-text">
          <span className="inline">
            <strong>{draft.label}</strong>
            {draft.recorded && <Tag color="success">{text.form.recorded}</Tag>}
          </span>
          <div className="muted small">{said(draft.reason)}</div>
        </div>
      ),
    },
    { title: text.drafts.kind, render: (_, draft) => nameOf(draft.proposer) },
    { title: t.models.parameters, align: 'right', render: (_, draft) => formatParameters(draft.parameters) },
    { title: t.common.size, align: 'right', render: (_, draft) => formatBytes(draft.size_bytes) },
    { title: t.common.actions, render: (_, draft) => <RowAction target={target} draft={draft} /> },
  ]
  return <DataTable rowKey="version" size="small" columns={columns} dataSource={drafts} />
}

function RowAction({ target, draft }: { target: string; draft: Draft }) {
  const text = useSpeculationText().drafts
  const act = useAct()
  const mayChange = useMayChange()
  const record = useRecordDraft()
  const forget = useForgetDraft()
  const action = draft.recorded ? forget : record
  return (
    <Button
      size="small"
      disabled={!mayChange}
      loading={action.isPending}
      onClick={() => action.mutate({ target, draft: draft.version }, { onError: act.failed })}
    >
      {draft.recorded ? text.remove : text.record}
    </Button>
  )
}
