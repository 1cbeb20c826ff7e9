import { Drawer, Segmented, Tabs } from 'antd'
import { useState } from 'react'
import { useText } from '@/i18n'
import { CodeBlock } from '@/ui/Copy'
import { curlChat, pythonChat } from '@/ui/requestCode'
import { type Message, messagesFor, type Turn } from './history'
import { type Parameters, toParams } from './parameters'

/** What the last message was sent as, for each model; a first message where nothing was sent yet. */
function lastRequest(model: string, turns: Turn[], parameters: Parameters, example: string) {
  const last = turns.at(-1)
  const messages: Message[] = messagesFor(
    model,
    parameters.system,
    turns.slice(0, -1),
    last?.prompt ?? example,
  )
  return { model, messages, params: toParams(parameters) }
}

export function CodeDrawer(props: {
  open: boolean
  models: string[]
  turns: Turn[]
  parameters: Parameters
  onClose: () => void
}) {
  const t = useText()
  const [chosen, setChosen] = useState('')
  const model = props.models.includes(chosen) ? chosen : (props.models[0] ?? '')
  const request = lastRequest(model, props.turns, props.parameters, t.playground.suggestions[0] ?? '')
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
