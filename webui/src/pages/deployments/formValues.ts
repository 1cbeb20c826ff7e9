import type { CapacityInput, Deployment, DeploymentInput, Device, EstimateInput } from '@/api/types'
import { AUTO, fromChoice, type SpeculationChoice, toChoice } from './speculation/choice'

/** What the form holds: like the API's body, with the KV cache in MiB, one role, and who guesses in one field. */
export interface FormValues {
  version?: string
  name: string
  description: string
  replicas: number
  engine: string
  device: Device
  dtype: string
  max_model_len: number
  max_num_seqs: number
  kv_cache_mib: number
  node_name: string
  gpu_indices: number[]
  /** Without `speculation`. */
  options: Record<string, unknown>
  speculation: SpeculationChoice
  /** An admin's reason to go past a gate; asked for once one has refused. */
  override?: string
}

const MIB = 1024 * 1024

export const NEW_VALUES: FormValues = {
  name: '',
  description: '',
  replicas: 1,
  engine: 'native',
  device: 'auto',
  dtype: 'auto',
  max_model_len: 0,
  max_num_seqs: 0,
  kv_cache_mib: 0,
  node_name: '',
  gpu_indices: [],
  options: {},
  speculation: AUTO,
}

/** A revision's options, and its draft, as the form holds them. */
export function splitOptions(
  { speculation, ...options }: Record<string, unknown>,
  draft: string | null,
): Pick<FormValues, 'options' | 'speculation'> {
  return { options, speculation: toChoice(speculation, draft) }
}

export function fromDeployment(deployment: Deployment): FormValues {
  const revision = deployment.revision
  return {
    ...NEW_VALUES,
    name: deployment.name,
    description: deployment.description,
    replicas: deployment.replicas.unified ?? 0,
    ...(revision && {
      version: revision.version,
      engine: revision.engine,
      device: revision.device as Device, // the API took it as one of them
      dtype: revision.dtype,
      max_model_len: revision.max_model_len,
      max_num_seqs: revision.max_num_seqs,
      kv_cache_mib: Math.round(revision.kv_cache_bytes / MIB),
      node_name: revision.node_name,
      gpu_indices: revision.gpu_indices,
      ...splitOptions(revision.options, revision.draft_version),
    }),
  }
}

/** Options left empty are the engine's own choice and are not sent. */
function filled(options: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(options).filter(([, value]) => value !== undefined && value !== null && value !== ''),
  )
}

export function toInput(values: FormValues): DeploymentInput {
  const { replicas, kv_cache_mib, version = '', speculation, override, ...rest } = values
  const { option, draft } = fromChoice(speculation)
  return {
    ...rest,
    version,
    replicas: { unified: replicas },
    max_model_len: rest.max_model_len ?? 0,
    max_num_seqs: rest.max_num_seqs ?? 0,
    kv_cache_bytes: (kv_cache_mib ?? 0) * MIB,
    options: { ...filled(rest.options ?? {}), ...(option && { speculation: option }) },
    draft_version: draft,
    ...(override && { override }),
  }
}

/** What the memory estimate depends on; null before a version is chosen. */
export function toEstimate(values: FormValues): EstimateInput | null {
  if (!values.version) return null
  const { name: _name, description: _description, override: _override, ...input } = toInput(values)
  return input
}

/** What to ask of a place: one request alone, and as many as can be at the length that the form has. */
export function toCapacity(input: EstimateInput): CapacityInput {
  const { version, engine, device, node_name, gpu_indices, gpus_per_replica } = input
  const { options, draft_version, max_model_len } = input
  const place = { version, engine, device, node_name, gpu_indices, gpus_per_replica, options, draft_version }
  return { ...place, concurrencies: [1], ...(max_model_len && { contexts: [max_model_len] }) }
}

/** API names of the fields that differ. */
export function changedFields(before: FormValues, after: FormValues): string[] {
  const [old, next] = [toInput(before), toInput(after)]
  return (Object.keys(next) as (keyof DeploymentInput)[]).filter(
    (field) => JSON.stringify(old[field]) !== JSON.stringify(next[field]),
  )
}

const WITHOUT_RESTART = new Set(['description', 'replicas', 'override'])

export function restartingFields(changed: string[]): string[] {
  return changed.filter((field) => !WITHOUT_RESTART.has(field))
}
