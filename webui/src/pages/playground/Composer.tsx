import { SendOutlined, StopOutlined } from '@ant-design/icons'
import { Button, Input } from 'antd'
import { type KeyboardEvent, useState } from 'react'
import { useText } from '@/i18n'
import { conversation } from './conversation'
import { isOpen } from './frames'
import type { Turn } from './history'

/** `models`: those to ask; none while nobody can answer. */
export function Composer({ models, turns }: { models: string[]; turns: Turn[] }) {
  const t = useText()
  const [prompt, setPrompt] = useState('')
  const streaming = turns.some((turn) => turn.answers.some(isOpen))
  const maySend = prompt.trim() !== '' && models.length > 0 && !streaming
  const send = () => {
    if (!maySend) return
    conversation.ask(prompt.trim(), models)
    setPrompt('')
  }
  const onKeyDown = (event: KeyboardEvent) => {
    // While a word is composed (Chinese input), Enter chooses it and must not send.
    if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return
    event.preventDefault()
    send()
  }
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault()
        send()
      }}
    >
      <Input.TextArea
        value={prompt}
        autoFocus
        autoSize={{ minRows: 1, maxRows: 8 }}
        aria-label={t.playground.prompt}
        placeholder={t.playground.promptHint}
        onChange={(change) => setPrompt(change.target.value)}
        onKeyDown={onKeyDown}
      />
      {streaming ? (
        <Button icon={<StopOutlined />} onClick={() => conversation.stopAll()}>
          {t.playground.stopAll}
        </Button>
      ) : (
        <Button type="primary" htmlType="submit" icon={<SendOutlined />} disabled={!maySend}>
          {t.playground.send}
        </Button>
      )}
    </form>
  )
}
