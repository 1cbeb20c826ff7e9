import type { Overview } from '@/api/types'
import type { Dictionary } from '@/i18n'

export interface Concern {
  key: string
  /** "Deployment", "Job" or "Node", in the user's language. */
  kind: string
  name: string
  to: string
  state: string
  reason: string
}

/** Nodes in these states do not serve as they should; cordoned and draining ones are as somebody wants them. */
const SILENT = ['lost', 'suspect']

/** Everything that wants a look: deployments that are not ready, silent nodes, failed jobs of the last day. */
export function concernsOf({ deployments, nodes, jobs }: Overview, t: Dictionary): Concern[] {
  return [
    ...deployments.problems.map((one) => ({
      key: one.id,
      kind: t.overview.deployment,
      name: one.name,
      to: `/deployments/${one.id}`,
      state: one.state,
      reason: one.reason,
    })),
    ...nodes
      .filter((node) => SILENT.includes(node.state))
      .map((node) => ({
        key: node.id,
        kind: t.overview.node,
        name: node.name,
        to: `/nodes/${node.id}`,
        state: node.state,
        reason: node.reason,
      })),
    ...jobs.failed.map((job) => ({
      key: job.id,
      kind: t.overview.job,
      name: job.title,
      to: `/jobs/${job.id}`,
      state: job.state,
      reason: job.reason,
    })),
  ]
}
