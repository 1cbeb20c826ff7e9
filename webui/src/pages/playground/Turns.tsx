import { Button } from 'antd'
import { useLayoutEffect, useRef } from 'react'
import { useText } from '@/i18n'
import { AnswerView } from './AnswerView'
import type { Turn } from './history'

const NEAR_END_PX = 60

/** All turns; each prompt once, its answers side by side. Follows the end until the reader scrolls up. */
export function Turns(props: {
  turns: Turn[]
  lanes: string[]
  tinted: boolean
  onSuggestion: (prompt: string) => void
}) {
  const t = useText()
  const { turns, lanes } = props
  const box = useRef<HTMLElement>(null)
  const atEnd = useRef(true)
  // biome-ignore lint/correctness/useExhaustiveDependencies: each frame moves the end
  useLayoutEffect(() => {
    if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight
  }, [turns])
  const onScroll = () => {
    const element = box.current
    if (element) atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX
  }
  return (
    <section className="turns" ref={box} onScroll={onScroll} aria-label={t.playground.title}>
      {turns.length === 0 && (
        <div className="suggestions">
          <span className="muted">{t.playground.suggestionsTitle}</span>
          {t.playground.suggestions.map((prompt) => (
            <Button key={prompt} onClick={() => props.onSuggestion(prompt)}>
              {prompt}
            </Button>
          ))}
        </div>
      )}
      {turns.map((turn) => (
        <TurnView key={turn.id} turn={turn} lanes={lanes} tinted={props.tinted} />
      ))}
    </section>
  )
}

function TurnView({ turn, lanes, tinted }: { turn: Turn; lanes: string[]; tinted: boolean }) {
  const t = useText()
  return (
    <div className="turn">
      <div className="prompt">
        <span className="visually-hidden">{t.playground.you}: </span>
        {turn.prompt}
      </div>
      <div className="lanes" style={{ gridTemplateColumns: `repeat(${lanes.length}, minmax(0, 1fr))` }}>
        {lanes.map((lane) => {
          const answer = turn.answers.find(({ model }) => model === lane)
          return answer ? <AnswerView key={lane} answer={answer} tinted={tinted} /> : <div key={lane} />
        })}
      </div>
    </div>
  )
}
