import { deployments } from './en/deployments'
import { models } from './en/models'
import { operations } from './en/operations'
import { playground } from './en/playground'
import { shared } from './en/shared'

export const en = { ...shared, ...operations, models, deployments, playground }

/** What every language must have: a missing key is a type error. */
export type Dictionary = typeof en
