import type { Dictionary } from './en'
import { deployments } from './zh/deployments'
import { models } from './zh/models'
import { operations } from './zh/operations'
import { playground } from './zh/playground'
import { shared } from './zh/shared'

export const zh: Dictionary = {
  ...shared,
  ...operations,
  models,
  deployments,
  playground,
}
