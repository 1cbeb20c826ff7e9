import type { Job } from '@/api/types'
import type { Dictionary } from '@/i18n'
import { formatSeconds } from '@/ui/units'

export function kindName(kind: string, t: Dictionary): string {
  return t.jobs.kinds[kind] ?? kind
}

/** From start to end, or until now; a dash before the start. */
export function tookText(job: Job): string {
  if (job.started_at === null) return '–'
  const end = job.finished_at === null ? Date.now() : new Date(job.finished_at).getTime()
  return formatSeconds(Math.max(0, end - new Date(job.started_at).getTime()) / 1_000)
}
