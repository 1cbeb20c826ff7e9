import { useSpeculationText } from '@/i18n/speculation'

/** What people call a proposer; a plugin's has its own name. */
export function useProposerName(): (source: string) => string {
  const { proposers } = useSpeculationText()
  return (source) => proposers[source]?.name ?? source
}
