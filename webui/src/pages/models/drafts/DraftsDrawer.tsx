import { Alert, Button, Drawer, Select } from 'antd'
import { useId, useState } from 'react'
import { Link } from 'react-router'
import { useReadyVersions } from '@/api/models'
import { useMayChange } from '@/api/session'
import { useDrafts, useRecordDraft } from '@/api/speculation'
import type { Version } from '@/api/types'
import { useSpeculationText } from '@/i18n/speculation'
import { NoDraft } from '@/pages/deployments/speculation/NoDraft'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { Loaded } from '@/ui/Page'
import { FittingDrafts } from './FittingDrafts'
import './drafts.css'

const labelOf = (version: Version) => `${version.model_name} v${version.number}`

/** Both sides: for whom this version writes ahead, and who can write ahead for it. */
export function DraftsDrawer({ version, onClose }: { version: Version; onClose: () => void }) {
  const text = useSpeculationText().drafts
  const drafts = useDrafts(version.id)
  const label = labelOf(version)
  return (
    <Drawer open title={text.title(label)} size={720} onClose={onClose}>
      <div className="stack">
        <p className="muted">{text.lead}</p>
        <UseAsDraft version={version} />
        <section aria-label={text.listTitle(label)}>
          <h2 className="section-title">{text.listTitle(label)}</h2>
          <Loaded query={drafts} rows={2}>
            {({ drafts: found }) =>
              found.length === 0 ? (
                <NoDraft version={version.id} />
              ) : (
                <FittingDrafts target={version.id} drafts={found} />
              )
            }
          </Loaded>
        </section>
      </div>
    </Drawer>
  )
}

/** The platform says which pairs go together; a refusal stands here with its numbers. */
function UseAsDraft({ version }: { version: Version }) {
  const text = useSpeculationText().drafts
  const mayChange = useMayChange()
  const ready = useReadyVersions()
  const record = useRecordDraft()
  const [target, setTarget] = useState<string>()
  const id = useId()
  const recorded = record.data && record.variables.target === target
  const chosen = ready.data?.find((one) => one.id === target)
  return (
    <section aria-label={text.useAs(labelOf(version))}>
      <h2 className="section-title">{text.useAs(labelOf(version))}</h2>
      <label htmlFor={id} className="visually-hidden">
        {text.target}
      </label>
      <div className="filters">
        <Select
          id={id}
          className="grow"
          showSearch={{ optionFilterProp: 'label' }}
          placeholder={text.target}
          loading={ready.isPending}
          value={target}
          onChange={(next) => {
            record.reset()
            setTarget(next)
          }}
          options={ready.data
            ?.filter((one) => one.id !== version.id)
            .map((one) => ({ value: one.id, label: labelOf(one) }))}
        />
        <Button
          type="primary"
          disabled={!mayChange || target === undefined}
          loading={record.isPending}
          onClick={() => target && record.mutate({ target, draft: version.id })}
        >
          {text.use}
        </Button>
      </div>
      <ErrorNotice error={record.error ?? ready.error} />
      {recorded && chosen && (
        <Alert
          type="success"
          showIcon
          role="status"
          title={text.recordedFor(labelOf(chosen))}
          action={
            <Link to={deployAddress(chosen.id, version.id, proposerIn(record.data.drafts, version.id))}>
              {text.deploy}
            </Link>
          }
        />
      )}
    </section>
  )
}

function proposerIn(drafts: { version: string; proposer: string }[], draft: string): string {
  return drafts.find((one) => one.version === draft)?.proposer ?? 'draft'
}

/** The form of a deployment of `target`, filled in to speculate with `draft`. */
function deployAddress(target: string, draft: string, proposer: string): string {
  return `/deployments/new?${new URLSearchParams({ version: target, draft, 'option.speculation': proposer })}`
}
