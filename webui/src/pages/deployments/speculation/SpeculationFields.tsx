import { Checkbox, Form, Radio, Tooltip } from 'antd'
import type { ReactNode } from 'react'
import { useSpeculationText } from '@/i18n/speculation'
import { toneOf } from '@/ui/proposers'
import { useProposerName } from '@/ui/useProposerName'
import { chosenCount, type Mode, needsNoDraft, type SpeculationChoice } from './choice'
import { DraftPicker } from './DraftPicker'
import './speculation.css'

/** Who guesses. `proposers`: those that the engine has. */
export function SpeculationFields({ proposers }: { proposers: string[] }) {
  const text = useSpeculationText()
  return (
    <>
      <p className="muted">{text.lead}</p>
      <Form.Item name="speculation" noStyle>
        <ChoiceInput proposers={proposers} />
      </Form.Item>
    </>
  )
}

interface Bound {
  value?: SpeculationChoice
  onChange?: (choice: SpeculationChoice) => void
}

function ChoiceInput({ proposers, value, onChange }: { proposers: string[] } & Bound) {
  const text = useSpeculationText().form
  if (!value) return null
  const first = proposers.find(needsNoDraft)
  const choose = (mode: Mode) =>
    onChange?.(
      mode === 'chosen' && chosenCount(value) === 0
        ? { ...value, mode, names: first ? [first] : [] }
        : { ...value, mode },
    )
  const modes: [Mode, string, string][] = [
    ['auto', text.auto, text.autoSays],
    ['chosen', text.chosen, text.chosenSays],
    ['off', text.off, text.offSays],
  ]
  return (
    <>
      <Radio.Group
        className="modes"
        aria-label={text.mode}
        value={value.mode}
        onChange={(change) => choose(change.target.value as Mode)}
      >
        {modes.map(([mode, name, says]) => (
          <Radio key={mode} value={mode}>
            <Named name={name} says={says} />
          </Radio>
        ))}
      </Radio.Group>
      {value.mode !== 'off' && (
        <div className="proposers">
          {value.mode === 'chosen' && <Proposers proposers={proposers} value={value} onChange={onChange} />}
          {proposers.some((name) => !needsNoDraft(name)) && (
            <DraftPicker choice={value} onChange={(draft) => onChange?.({ ...value, draft })} />
          )}
        </div>
      )}
    </>
  )
}

function Proposers({
  proposers,
  value,
  onChange,
}: {
  proposers: string[]
  value: SpeculationChoice
  onChange: Bound['onChange']
}) {
  const text = useSpeculationText()
  const change = (part: Partial<SpeculationChoice>) => onChange?.({ ...value, ...part })
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset draws a frame of its own
    <div role="group" aria-label={text.form.proposers} className="proposer-list">
      {[...new Set([...proposers, ...value.names])].filter(needsNoDraft).map((name) => (
        <ProposerBox
          key={name}
          proposer={name}
          checked={value.names.includes(name)}
          last={value.names.includes(name) && chosenCount(value) === 1}
          onChange={(checked) =>
            change({ names: checked ? [...value.names, name] : value.names.filter((one) => one !== name) })
          }
        />
      ))}
    </div>
  )
}

/** `last`: nobody else guesses, so it can't be taken away. */
function ProposerBox(props: {
  proposer: string
  checked: boolean
  last: boolean
  onChange: (checked: boolean) => void
}) {
  const text = useSpeculationText()
  const nameOf = useProposerName()
  const { proposer, last } = props
  return (
    <Tooltip title={last ? text.form.last : undefined} placement="topLeft">
      <Checkbox
        checked={props.checked}
        disabled={last}
        onChange={({ target }) => props.onChange(target.checked)}
      >
        <Named
          tone={toneOf(proposer)}
          name={nameOf(proposer)}
          says={text.proposers[proposer]?.says ?? text.ofPlugin}
        />
      </Checkbox>
    </Tooltip>
  )
}

function Named({ name, says, tone }: { name: string; says: ReactNode; tone?: string }) {
  return (
    <>
      {tone && <span className={`guess-key guessed ${tone}`} aria-hidden />} <strong>{name}</strong>
      <span className="muted says">{says}</span>
    </>
  )
}
