import { Form, Select } from 'antd'
import { useId } from 'react'
import { useDrafts } from '@/api/speculation'
import { useSpeculationText } from '@/i18n/speculation'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { formatBytes, formatParameters } from '@/ui/units'
import { useProposerName } from '@/ui/useProposerName'
import { fitsAuto, type SpeculationChoice } from './choice'
import { NoDraft } from './NoDraft'

/** The drafts that fit the version of the form, or why none does. `auto` takes a model beside its cache, and no head. */
export function DraftPicker(props: {
  choice: SpeculationChoice
  onChange: (draft: SpeculationChoice['draft']) => void
}) {
  const { choice, onChange } = props
  const automatic = choice.mode === 'auto'
  const value = automatic && !fitsAuto(choice.draft) ? null : choice.draft
  const needed = !automatic && choice.names.length === 0
  const text = useSpeculationText().form
  const nameOf = useProposerName()
  const version: string | undefined = Form.useWatch('version')
  const drafts = useDrafts(version)
  const found = drafts.data?.drafts.filter((one) => !automatic || fitsAuto(one))
  const id = useId()
  const gone = value !== null && found !== undefined && !found.some((one) => one.version === value.version)
  return (
    <div className="draft-picker">
      <label htmlFor={id}>
        <strong>{text.draft}</strong>
      </label>
      <span className="muted says">{text.draftSays}</span>
      {version === undefined && <p className="muted">{text.chooseVersion}</p>}
      <ErrorNotice error={drafts.error} onRetry={() => drafts.refetch()} />
      {(value !== null || (found !== undefined && found.length > 0)) && (
        <Select
          id={id}
          className="full-width"
          placeholder={text.draftNone}
          loading={drafts.isPending}
          status={gone ? 'error' : undefined}
          allowClear={!needed}
          value={value?.version}
          onChange={(chosen: string | undefined) => {
            const draft = found?.find((one) => one.version === chosen)
            onChange(draft ? { version: draft.version, proposer: draft.proposer } : null)
          }}
          options={found?.map((one) => ({
            value: one.version,
            label: [
              one.label,
              nameOf(one.proposer),
              formatParameters(one.parameters),
              formatBytes(one.size_bytes),
              one.recorded && text.recorded,
            ]
              .filter(Boolean)
              .join(' · '),
          }))}
        />
      )}
      {gone && (
        <p role="alert" className="tone-error">
          {text.gone}
        </p>
      )}
      {version !== undefined && found?.length === 0 && <NoDraft version={version} />}
    </div>
  )
}
