import type { DomainTokensReport } from '@/api/domainTokens'
import { useDomainTokensText } from '@/i18n/domainTokens'
import './tokenExamples.css'

type Example = NonNullable<DomainTokensReport['saving']>['examples'][number]

/** Lines of the user's text, cut where the tokens are, before and after. */
export function TokenExamples({ examples }: { examples: Example[] }) {
  const text = useDomainTokensText()
  if (examples.length === 0) return null
  return (
    <section aria-label={text.examples} className="token-examples">
      <strong>{text.examples}</strong>
      {examples.map((example) => (
        <div key={example.text} className="token-example">
          <Tokens pieces={example.before} />
          <Tokens pieces={example.after} />
        </div>
      ))}
    </section>
  )
}

function Tokens({ pieces }: { pieces: string[] }) {
  const text = useDomainTokensText()
  return (
    <p className="token-line">
      <span className="token-count muted small">{text.tokens(pieces.length)}</span>
      <span>
        {placed(pieces).map(({ piece, at }) => (
          <span key={at} className="token-piece">
            {piece}
          </span>
        ))}
      </span>
    </p>
  )
}

/** A token that is part of a character has no text of its own, and is not drawn. */
function placed(pieces: string[]): { piece: string; at: number }[] {
  return pieces.map((piece, at) => ({ piece, at })).filter(({ piece }) => piece !== '')
}
