import type { Revision } from '@/api/types'

export interface Difference {
  field: string
  from: string
  to: string
}

/** Fields that say how it runs; ids, times and people are not part of a revision's meaning. */
const COMPARED = [
  'engine',
  'device',
  'dtype',
  'max_model_len',
  'max_num_seqs',
  'kv_cache_bytes',
  'node_name',
  'gpu_indices',
  'options',
] as const

function text(value: unknown): string {
  if (value === '' || value === 0) return 'auto'
  if (Array.isArray(value)) return value.length === 0 ? 'auto' : value.join(', ')
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

export function differences(before: Revision, after: Revision): Difference[] {
  const found: Difference[] = []
  if (before.version !== after.version) {
    found.push({ field: 'version', from: before.version_label, to: after.version_label })
  }
  for (const field of COMPARED) {
    if (JSON.stringify(before[field]) !== JSON.stringify(after[field])) {
      found.push({ field, from: text(before[field]), to: text(after[field]) })
    }
  }
  if (before.draft_version !== after.draft_version) {
    found.push({ field: 'draft_version', from: before.draft_label ?? '–', to: after.draft_label ?? '–' })
  }
  return found
}
