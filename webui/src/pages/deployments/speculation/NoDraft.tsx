import { useReadyVersions } from '@/api/models'
import type { Version } from '@/api/types'
import { useLocale } from '@/i18n'
import { useSpeculationText } from '@/i18n/speculation'
import { formatCount, formatParameters } from '@/ui/units'
import { unfit } from './choice'

/** Why no ready version can write ahead for `version`, each by name. */
export function NoDraft({ version }: { version: string }) {
  const text = useSpeculationText().form
  const locale = useLocale()
  const ready = useReadyVersions().data
  const target = ready?.find((one) => one.id === version)
  if (!target) return null
  const others = ready?.filter((one) => one.id !== version) ?? []
  const label = (one: Version) => `${one.model_name} v${one.number}`
  const vocabulary = (one: Version) => formatCount(one.shape.vocab ?? 0, locale)
  const parameters = (one: Version) => formatParameters(one.shape.parameters ?? 0)
  const why = (one: Version) =>
    ({
      vocabulary: () => text.otherVocabulary(label(one), vocabulary(one)),
      not_smaller: () => text.notSmaller(label(one), parameters(one)),
      tokenizer: () => text.otherTokenizer(label(one)),
    })[unfit(target, one)]()
  return (
    <div className="muted" data-testid="no-draft">
      {text.noneFit(label(target))} {text.noneRule(vocabulary(target), parameters(target))}
      {others.length === 0 ? (
        ` ${text.noOther}`
      ) : (
        <ul>
          {others.map((one) => (
            <li key={one.id}>{why(one)}</li>
          ))}
        </ul>
      )}
    </div>
  )
}
