// What the control plane's REST API answers (docs/contracts.md §6). Times are ISO 8601 UTC, sizes are bytes.

export type Role = 'viewer' | 'member' | 'admin'
export interface Team {
  id: string
  name: string
  role: Role
}
export interface User {
  id: string
  username: string
  email: string
  is_admin: boolean
  language: string
  theme: 'system' | 'light' | 'dark'
}
export interface Session {
  user: User
  team: Team | null
  teams: Team[]
  version: string
}

export interface Page<T> {
  count: number
  next: string | null
  previous: string | null
  results: T[]
}

export interface ChecklistStep {
  key: 'model' | 'deployment' | 'chat' | 'key'
  done: boolean
  at: string | null
}

export type VersionState = 'importing' | 'ready' | 'failed'
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
export interface VersionFile {
  name: string
  size: number
  sha256: string
}
export interface Version {
  id: string
  model: string
  model_name: string
  number: number
  state: VersionState
  reason: string
  source_kind: 'path' | 'hub' | 'demo' | 'job'
  source_ref: string
  source_revision: string
  format: string
  architecture: string
  dtype: string
  quantization: string
  license: string
  size_bytes: number
  shape: Partial<ModelShape>
  tokenizer: Record<string, unknown>
  has_chat_template: boolean
  files: VersionFile[]
  job: string | null
  created_at: string
}
export interface VersionDetail extends Version {
  chat_template: string
}
export interface ModelAlias {
  name: string
  version: string
  number: number
}
export interface Model {
  id: string
  name: string
  description: string
  task: string
  created_at: string
  versions_count: number
  aliases: ModelAlias[]
  latest: Version | null
}
export interface ModelDetail extends Model {
  versions: Version[]
}
export interface ModelImport {
  source: 'demo' | 'path' | 'hub'
  ref: string
  revision?: string
  name?: string
}
export interface LineageEdge {
  id: string
  kind: 'quantized_from' | 'distilled_from' | 'draft_for'
  parent: string
  child: string
  job: string | null
  /** Measured change per quantity. */
  changes: Record<string, { before: number; after: number; unit: string }>
}
export interface Lineage {
  nodes: { version: string; label: string }[]
  edges: LineageEdge[]
}

export type JobState =
  | 'queued'
  | 'running'
  | 'cancelling'
  | 'succeeded'
  | 'rejected'
  | 'errored'
  | 'cancelled'
export interface Job {
  id: string
  kind: string
  title: string
  state: JobState
  reason: string
  progress: number
  progress_text: string
  attempt: number
  max_attempts: number
  subject_type: string
  subject_id: string | null
  requested_by: string | null
  node_name: string
  created_at: string
  started_at: string | null
  finished_at: string | null
  report: Record<string, unknown>
  error: { code?: string; message?: string; hint?: string }
}
export interface LogPart {
  text: string
  next: number
  ended: boolean
}

export type DeploymentState = 'ready' | 'degraded' | 'starting' | 'stopped' | 'failed' | 'deleting'
export type InstanceState =
  | 'pending'
  | 'scheduled'
  | 'starting'
  | 'ready'
  | 'draining'
  | 'stopped'
  | 'unreachable'
  | 'failed'
export type RoleCounts = Record<string, number>
export interface Revision {
  id: string
  number: number
  version: string
  version_label: string
  engine: string
  device: string
  dtype: string
  max_model_len: number
  max_num_seqs: number
  kv_cache_bytes: number
  node_name: string
  gpu_indices: number[]
  options: Record<string, unknown>
  created_at: string
  created_by: string | null
  current: boolean
}
export interface Placement {
  chosen?: string
  reason?: string
  rejected?: { node: string; reason: string }[]
}
export interface Instance {
  id: string
  role: string
  index: number
  state: InstanceState
  reason: string
  desired: 'running' | 'stopped' | 'deleted'
  node: string | null
  epoch: number
  progress: number
  restarts: number
  next_start_at: string | null
  ready_at: string | null
  seen_at: string | null
  /** As effective in the running engine: dtype, device, kv blocks, … */
  facts: Record<string, unknown>
  placement: Placement
  revision_number: number
}
export interface Deployment {
  id: string
  name: string
  description: string
  desired: 'running' | 'stopped' | 'deleted'
  state: DeploymentState
  reason: string
  replicas: RoleCounts
  ready: RoleCounts
  revision: Revision | null
  instances: Instance[]
  created_at: string
  endpoint: string
}
/** What a revision is made of; 0 and "auto" leave the choice to the engine. */
export interface RevisionInput {
  version: string
  engine?: string
  device?: string
  dtype?: string
  max_model_len?: number
  max_num_seqs?: number
  kv_cache_bytes?: number
  node_name?: string
  gpu_indices?: number[]
  options?: Record<string, unknown>
}
export interface DeploymentInput extends RevisionInput {
  name: string
  description?: string
  replicas: RoleCounts
  /** Also where no replica fits now: it waits for room. */
  force?: boolean
}
export interface Estimate {
  fits: boolean
  reason: string
  suggestions: string[]
  memory: {
    weights: number
    kv_cache: number
    activations: number
    overhead: number
    total: number
    available: number
  }
  kv_tokens: number
  node: string | null
  rejected: { node: string; reason: string }[]
}
export interface JsonSchema {
  type?: string
  title?: string
  description?: string
  default?: unknown
  enum?: (string | number)[]
  minimum?: number
  maximum?: number
  properties?: Record<string, JsonSchema>
}
export interface EngineInfo {
  name: string
  label: string
  capabilities: {
    formats: string[]
    architectures: string[]
    devices: string[]
    dtypes: string[]
    roles: string[]
    features: string[]
  }
  options_schema: JsonSchema
}

export type NodeState = 'ready' | 'suspect' | 'lost' | 'cordoned' | 'draining'
export interface Gpu {
  index: number
  name: string
  uuid: string
  memory_total: number
  memory_used: number
  /** 0…1; null where the driver does not tell. */
  utilization: number | null
}
export interface Node {
  id: string
  name: string
  state: NodeState
  reason: string
  address: string
  backend: string
  heartbeat_at: string | null
  heartbeat_age_s: number | null
  cordoned: boolean
  draining: boolean
  cpu_count: number
  memory_total: number
  memory_available: number
  disk_free: number
  versions: Record<string, string>
  gpus: Gpu[]
  instances: { id: string; deployment: string; state: InstanceState }[]
}

export interface ApiKey {
  id: string
  name: string
  prefix: string
  allowed_models: string[]
  requests_per_minute: number | null
  tokens_per_minute: number | null
  max_parallel: number | null
  expires_at: string | null
  revoked_at: string | null
  last_used_at: string | null
  created_at: string
  created_by: string | null
}
export interface ApiKeyInput {
  name: string
  allowed_models?: string[]
  requests_per_minute?: number | null
  tokens_per_minute?: number | null
  max_parallel?: number | null
  expires_at?: string | null
}
export interface NewApiKey extends ApiKey {
  secret: string
}

export type UsageGroup = 'key' | 'deployment' | 'day'
export interface UsageNumbers {
  requests: number
  errors: number
  prompt_tokens: number
  cached_tokens: number
  completion_tokens: number
}
export interface UsageRow extends UsageNumbers {
  group: string | null
  label: string
}
export interface Usage {
  rows: UsageRow[]
  totals: UsageNumbers
}

export interface Event {
  id: number
  kind: string
  subject_type: string
  subject_id: string
  text: string
  payload: Record<string, unknown>
  actor: string
  created_at: string
}
export interface EventList {
  events: Event[]
  last_event_id: number
}

export interface Overview {
  deployments: {
    total: number
    ready: number
    problems: { id: string; name: string; state: DeploymentState; reason: string }[]
  }
  instances: { ready: number; total: number }
  nodes: Node[]
  jobs: { running: number; failed_24h: number; recent: Job[] }
  traffic: {
    window_s: number
    requests: number
    errors: number
    prompt_tokens: number
    completion_tokens: number
    tokens_per_s: number
    ttft_ms: { p50: number | null; p95: number | null }
    series: { at: string; requests: number; completion_tokens: number }[]
  }
}
