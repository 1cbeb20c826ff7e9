// What a run of `evaluation` leaves behind: the shapes of evaluation/schema.py. Times of requests are ms, rates are
// requests per second; what could not be measured is null, never 0.

export type Decision = 'pass' | 'fail' | 'undetermined'
export type LevelVerdict = 'steady' | 'overloaded' | 'undetermined' | 'invalid'
export type RunVerdict = Decision | 'invalid'
export type LatencyMetric = 'ttft' | 'e2el' | 'tpot' | 'itl'
export type Quantile = 'p50' | 'p90' | 'p95' | 'p99'

export interface Objective {
  metric: LatencyMetric
  limit_ms: number
  /** 0…1 */
  quantile: number
  start?: 'intended' | 'actual'
}

export interface ObjectiveResult extends Objective {
  /** Misses of n, failed requests among them; lower and upper bound k / n. */
  k: number
  n: number
  failed: number
  lower: number
  upper: number
  decision: Decision
}

/** Of the successful requests of one level; low and high are the 95 % interval of the mean. */
export interface Summary {
  unit: string
  n: number
  mean: number | null
  p50: number | null
  p90: number | null
  p95: number | null
  p99: number | null
  low: number | null
  high: number | null
  min: number | null
  max: number | null
  bounds: Partial<Record<Quantile, [number | null, number | null]>>
}

export interface Counts {
  offered: number
  done: number
  ok: number
  error: number
  timeout: number
  cut: number
  cancelled: number
  warm_up: number
  in_flight_start: number
  in_flight_end: number
}

export type FindingSeverity = 'info' | 'warning' | 'error'
export interface Finding {
  code: string
  severity: FindingSeverity
  /** English sentences; the console has its own words for the codes that it knows. */
  cause: string
  remedy: string
  evidence: Record<string, unknown>
  level: number | null
}

export interface Health {
  healthy: boolean
  reasons: string[]
  pacing_p50_ms: number | null
  pacing_p99_ms: number | null
  loop_p99_ms: number | null
  cpu_share: number | null
  processes: number
  null_server_rate: number | null
  chunks_per_s: number | null
}

export interface LevelResult {
  index: number
  rate: number | null
  verdict: LevelVerdict
  concurrency: number | null
  seed: number
  window: { seconds: number; truncated_s: number } | null
  counts: Counts
  offered_rate: number | null
  done_rate: number | null
  goodput: number | null
  attainment: number | null
  metrics: Record<string, Summary>
  objectives: ObjectiveResult[]
  decision: Decision
  checks: Record<string, number | null>
  reasons: string[]
  health: Health
  prefix: { expected: number | null; measured: number | null; source: string }
  server: Record<string, number>
  series: Record<string, (number | null)[]>
  findings: Finding[]
}

export interface Capacity {
  low: number | null
  high: number | null
  decision: 'certified' | 'open_above' | 'unreachable' | 'undetermined'
  levels: number
}

export interface RunSpec {
  name?: string
  /** Of a suite: without url and model, which come from the target of a run. */
  endpoint?: { url?: string; model?: string; [field: string]: unknown }
  dataset?: { kind: string; [field: string]: unknown }
  load?: { kind: string; [field: string]: unknown }
  slo?: Objective[]
  min_requests?: number
  scenario?: string
  seed?: number | null
  confidence?: number
  [field: string]: unknown
}

export interface ResultDoc {
  id: string
  kind: 'load' | 'search' | 'quality' | 'plan'
  schema_version: number
  definitions: number
  state: 'running' | 'complete' | 'incomplete'
  spec: RunSpec | null
  seed: number
  started_at: string
  ended_at: string
  environment: Record<string, unknown>
  dataset: {
    sha256: string
    requests: number
    lengths: Record<string, Summary>
    expected_hit_rate: number | null
    duplicates: number
    after_template: boolean
  }
  levels: LevelResult[]
  capacity: Capacity | null
  /** Empty without a scenario. */
  score: { scenario?: string; value?: number; weights?: Record<string, number>; counts?: boolean }
  quality: QualityResult | null
  plan: Record<string, unknown>
  findings: Finding[]
  verdict: RunVerdict
}

/** evaluation/quality/results.py: one measured number with its interval. */
export interface QualityFigure {
  value: number | null
  low: number | null
  high: number | null
  unit: string
  n: number
  method: string
}

export interface QualityTask {
  name: string
  kind: string
  /** The figure that the task is known by. */
  primary: string
  figures: Record<string, QualityFigure>
  items: number
  measured: number
  errors: number
  state: 'complete' | 'incomplete'
  /** What guessing reaches. */
  chance: number | null
  dataset: Record<string, unknown>
  policy: Record<string, unknown>
  /** File of samples, relative to the result. */
  samples: string
}

export interface GateResult {
  name: string
  /** task.figure */
  metric: string
  rule: string
  decision: Decision | 'error'
  blocks: boolean
  value: number | null
  low: number | null
  high: number | null
  limit: number | null
  baseline: number | null
  wrong_to_right: number | null
  right_to_wrong: number | null
  p: number | null
  p_adjusted: number | null
  n: number
  reason: string
  code: string
}

export interface QualityResult {
  suite: string
  tasks: QualityTask[]
  gates: GateResult[]
}

/** A line of a task's file of samples. */
export interface Sample {
  id: string
  group: string
  prompt: string
  expected: string
  answer: string
  score: number | null
  reason: string
  error: string
}
