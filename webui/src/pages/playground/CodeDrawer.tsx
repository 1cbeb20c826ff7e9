import { Drawer, Segmented, Tabs } from 'antd'
import { useState } from 'react'
import { useText } from '@/i18n'
import { CodeBlock } from '@/ui/Copy'
import { curlChat, pythonChat } from '@/ui/requestCode'
import { type Message, messagesFor, type Turn } from './history'
import { type Parameters, toParams } from './parameters'

/** What the last message was sent as, for each model; a first message where nothing was sent yet. */
function lastRequest(
  model: string,
  turns: Turn[],
  parameters: Parameters,
  sources: boolean,
  example: string,
) {
  const last = turns.at(-1)
  const messages: Message[] = messagesFor(
    model,
    parameters.system,
    turns.slice(0, -1),
    last?.prompt ?? example,
  )
  // The engine's own name for what the page asks with `sources`.
  const asked = sources ? { return_draft_sources: true } : {}
  return { model, messages, params: { ...toParams(parameters), ...asked } }
}

export function CodeDrawer(props: {
  open: boolean
  models: string[]
  turns: Turn[]
  parameters: Parameters
  /** Whether the words that were guessed are shown. */
  sources: boolean
  onClose: () => void
}) {
  const t = useText()
  const [chosen, setChosen] = useState('')
  const model = props.models.includes(chosen) ? chosen : (props.models[0] ?? '')
  const { turns, parameters, sources } = props
  const request = lastRequest(model, turns, parameters, sources, t.playground.suggestions[0] ?? '')
  return (
    <Drawer
      open={props.open}
      title={t.playground.codeTitle}
      size={640}
      onClose={props.onClose}
      destroyOnHidden
    >
      <p className="muted">{t.playground.codeLead}</p>
      {props.models.length > 1 && (
        <Segmented
          aria-label={t.playground.model}
          options={props.models}
          value={model}
          onChange={setChosen}
        />
      )}
      <Tabs
        items={[
          { key: 'curl', label: 'curl', children: <CodeBlock code={curlChat(request)} name="curl" /> },
          {
            key: 'python',
            label: 'Python (OpenAI SDK)',
            children: <CodeBlock code={pythonChat(request)} name="Python" />,
          },
        ]}
      />
    </Drawer>
  )
}
