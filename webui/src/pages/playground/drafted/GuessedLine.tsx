import { Tooltip } from 'antd'
import { useLocale } from '@/i18n'
import { useSpeculationText } from '@/i18n/speculation'
import { toneOf } from '@/ui/proposers'
import { formatCount, percent } from '@/ui/units'
import { useProposerName } from '@/ui/useProposerName'
import { type Answer, isOpen } from '../frames'
import { sharesOf, tokensPerStep } from './spans'

/** Under an answer: whose guesses the tinted words are, and once it is whole, how many tokens a step brought. */
export function GuessedLine({ answer }: { answer: Answer }) {
  const text = useSpeculationText().chat
  const nameOf = useProposerName()
  const { guessed } = answer
  if (!guessed) return isOpen(answer) ? null : <p className="muted small">{text.notTold}</p>
  return (
    <div className="guessed-line small" data-testid="guessed">
      {guessed.length === 0 ? (
        <span className="muted">{isOpen(answer) ? text.noneYet : text.none}</span>
      ) : (
        <ul className="guessed-legend" aria-label={text.legend}>
          {sharesOf(guessed, answer.text.length).map(({ source, share }) => (
            <li key={source} data-source={source}>
              <span className={`guess-key guessed ${toneOf(source)}`} aria-hidden />
              {nameOf(source)} <span className="muted">{text.share(percent(share))}</span>
            </li>
          ))}
        </ul>
      )}
      <Counts answer={answer} />
    </div>
  )
}

function Counts({ answer }: { answer: Answer }) {
  const text = useSpeculationText().chat
  const locale = useLocale()
  const tokens = answer.usage?.completion_tokens ?? 0
  const accepted = answer.usage?.completion_tokens_details?.accepted_prediction_tokens
  const each = tokensPerStep(tokens, accepted)
  if (each === null || accepted === undefined) return null
  return (
    <>
      <span className="muted">{text.count(formatCount(accepted, locale), formatCount(tokens, locale))}</span>
      <Tooltip title={text.perStepHint}>
        <span>
          <strong>{each.toFixed(2)}</strong> {text.perStep}
        </span>
      </Tooltip>
    </>
  )
}
