import type { Gate } from '@/api/evaluations'
import type { Deployment, Model } from '@/api/types'

export interface Move {
  body: { version: string; alias?: string; deployment?: string }
  /** The version that would be moved to. */
  label: string
}

/** Stands for each alias where a gate names none. */
const ANY_ALIAS = 'champion'

/** The move that a gate is next asked about: to the newest version of its model. Null: there is none to move to. */
export function moveOf(gate: Gate, models: Model[], deployments: Deployment[]): Move | null {
  if (gate.kind === 'alias') {
    const latest = models.find((model) => model.id === gate.model)?.latest
    return latest
      ? { body: { version: latest.id, alias: gate.alias || ANY_ALIAS }, label: labelOf(latest) }
      : null
  }
  const served = deployments.find((one) => one.id === gate.deployment)?.revision
  const model = models.find((one) => one.name === served?.version_label.replace(/ v\d+$/, ''))
  const version = model?.latest
  if (version)
    return { body: { version: version.id, deployment: gate.deployment ?? '' }, label: labelOf(version) }
  if (!served) return null
  return { body: { version: served.version, deployment: gate.deployment ?? '' }, label: served.version_label }
}

function labelOf({ model_name, number }: { model_name: string; number: number }): string {
  return `${model_name} v${number}`
}
