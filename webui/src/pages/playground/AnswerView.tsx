import { StopOutlined } from '@ant-design/icons'
import { Alert, Button, Spin } from 'antd'
import { lazy, memo, Suspense } from 'react'
import { useSaid, useText } from '@/i18n'
import { CopyButton } from '@/ui/Copy'
import { useProposerName } from '@/ui/useProposerName'
import { AnswerFigures } from './AnswerFigures'
import { conversation } from './conversation'
import { GuessedLine } from './drafted/GuessedLine'
import { type Answer, isOpen } from './frames'

const Markdown = lazy(async () => ({ default: (await import('./Markdown')).Markdown }))

/** `tinted`: shows what of it was guessed. */
export const AnswerView = memo(function AnswerView(props: { answer: Answer; tinted: boolean }) {
  const { answer, tinted } = props
  const t = useText()
  const nameOf = useProposerName()
  const open = isOpen(answer)
  return (
    <article className="answer" aria-label={answer.model} aria-busy={open} data-state={answer.state}>
      <Suspense fallback={<p className="plain">{answer.text}</p>}>
        <Markdown text={answer.text} guessed={tinted ? answer.guessed : undefined} nameOf={nameOf} />
      </Suspense>
      {answer.state === 'waiting' && (
        <p className="muted">
          <Spin size="small" /> {t.playground.waiting}
        </p>
      )}
      {open && answer.resuming && <p className="muted small">{t.playground.resuming}</p>}
      {answer.error && <AnswerError error={answer.error} />}
      {answer.finishReason === 'length' && <p className="muted small">{t.playground.cutByLength}</p>}
      {tinted && answer.text !== '' && <GuessedLine answer={answer} />}
      <div className="answer-foot">
        {open ? (
          <Button size="small" icon={<StopOutlined />} onClick={() => conversation.stop(answer)}>
            {t.playground.stop}
          </Button>
        ) : (
          <>
            {answer.state === 'stopped' && <span className="muted small">{t.playground.stopped}</span>}
            <AnswerFigures answer={answer} />
            {answer.text && <CopyButton text={answer.text} name={t.playground.copyAnswer} />}
          </>
        )}
      </div>
      {/* Readers hear that an answer is there, not each of its pieces. */}
      <span className="visually-hidden" aria-live="polite">
        {answer.state === 'done' && t.playground.answerDone(answer.model)}
        {answer.state === 'error' && t.playground.answerFailed(answer.model)}
      </span>
    </article>
  )
})

/** An engine's words with a capital: to programs they begin with the field at fault. */
const begun = (text: string) => text.charAt(0).toUpperCase() + text.slice(1)

function AnswerError({ error }: { error: NonNullable<Answer['error']> }) {
  const t = useText()
  const said = useSaid()
  const known: Record<string, { message: string; hint: string }> = {
    network: { message: t.errors.network, hint: t.errors.networkHint },
    not_found: { message: t.playground.expired, hint: t.playground.expiredHint },
  }
  const { message, hint } = known[error.code] ?? error
  return (
    <Alert
      type="error"
      showIcon
      role="alert"
      title={begun(said(message))}
      description={said(hint) || undefined}
    />
  )
}
