import type { Deployment } from '@/api/types'

/** Whether a run can be aimed at it now. */
export function answers({ state }: Deployment): boolean {
  return state === 'ready' || state === 'degraded'
}
