// What the control plane's REST API answers. The shapes come from docs/openapi.yaml (`npm run types` writes
// schema.ts); here they get the console's names, and objects that the schema leaves open get their fields.
// Times are ISO 8601 UTC, sizes are bytes.

import type { components } from './schema'

type Schema = components['schemas']

export type Team = Schema['TeamRole']
export type User = Schema['SessionUser']
export type Session = Schema['Session']
export type ChecklistStep = Schema['ChecklistStep']

export interface Page<T> {
  count: number
  results: T[]
}

/** engines.api.ModelShape; unknown numbers are 0. */
export interface ModelShape {
  architecture: string
  layers: number
  hidden: number
  ffn: number
  heads: number
  kv_heads: number
  head_dim: number
  vocab: number
  context_length: number
  parameters: number
  tied_embeddings: boolean
  sliding_window: number
}
type Shaped<T> = Omit<T, 'shape'> & { shape: Partial<ModelShape> }
export type Version = Shaped<Schema['Version']>
export type VersionDetail = Shaped<Schema['VersionDetail']>
export type Model = Omit<Schema['Model'], 'latest'> & { latest: Version | null }
export type ModelDetail = Model & { versions: Version[] }
export interface ModelImport {
  source: 'demo' | 'path' | 'hub'
  /** Path or hub id; the demo model needs none. */
  ref?: string
  revision?: string
  name?: string
}
/** Measured change per quantity. */
/** Words for a verdict, else numbers. */
export interface Change {
  before: number | string
  after: number | string
  unit: string
}
type Changes = Record<string, Change>
export type LineageEdge = Omit<Schema['LineageEdge'], 'changes'> & { changes: Changes }
export type Lineage = Omit<Schema['Lineage'], 'edges'> & { edges: LineageEdge[] }

export type Job = Schema['Job']
export type JobState = Schema['JobStateEnum']
export type LogPart = Schema['LogPage']

export type DeploymentState = Schema['DeploymentStateEnum']
export type InstanceState = Schema['InstanceStateEnum']
export type RoleCounts = Record<string, number>
export type Revision = Schema['Revision']
export interface Placement {
  chosen?: string | null
  reason?: string
  rejected?: Schema['Rejected'][]
}
export type Instance = Omit<Schema['Instance'], 'placement'> & { placement: Placement }
export type Deployment = Omit<Schema['Deployment'], 'instances'> & { instances: Instance[] }
export type DeploymentInput = Schema['CreateDeploymentRequest']
export type DeploymentEdit = Schema['PatchedUpdateDeploymentRequest']
export type EditedDeployment = Schema['UpdatedDeployment']
export type Device = Schema['DeviceEnum']
export type EstimateInput = Schema['EstimateRequestRequest']
export type Estimate = Schema['Estimate']
export type CapacityInput = Schema['CapacityRequestRequest']
export type Capacity = Schema['Capacity']
export interface JsonSchema {
  type?: string
  title?: string
  description?: string
  default?: unknown
  enum?: (string | number)[]
  minimum?: number
  maximum?: number
  items?: JsonSchema
  properties?: Record<string, JsonSchema>
}
export interface EngineInfo extends Omit<Schema['Engine'], 'capabilities' | 'options_schema'> {
  capabilities: { devices: string[]; dtypes: string[]; proposers?: string[] }
  options_schema: JsonSchema
}

export type InstanceMemory = Schema['InstanceMemory']
export type CompareInput = Pick<Schema['CompareInputRequest'], 'reference'> &
  Partial<Schema['CompareInputRequest']>
export interface LayerDifference {
  layer: number
  relative_error: number | null
  /** Of the layer given the reference's input. */
  own_error: number | null
  least_cosine: number | null
  worst_token: number
}
interface ComparedSide {
  version: string
  label: string
  dtype: string
}
/** The report of a job of kind registry.compare; a number that is none is null. */
export interface Comparison {
  reference: ComparedSide
  other: ComparedSide
  tokens: number
  layers: LayerDifference[]
  kl: number | null
  kl_p99: number | null
  same_top: number
  first_change: number
  perplexity: [number | null, number | null]
}

export type Node = Schema['Node']
export type NodeState = Schema['NodeStateEnum']
export type Gpu = Schema['Gpu']

export type ApiKey = Schema['ApiKey']
export type ApiKeyInput = Schema['ApiKeyInputRequest']
export type NewApiKey = Schema['NewApiKey']

export type UsageGroup = 'key' | 'deployment' | 'day'
export type UsageNumbers = Schema['UsageTotals']
export type UsageRow = Schema['UsageRow']
export type Usage = Schema['Usage']

export type Event = Schema['Event']
export type EventList = Schema['EventPage']
export type Overview = Schema['Overview']
