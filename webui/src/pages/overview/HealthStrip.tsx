import { Link } from 'react-router'
import type { Overview } from '@/api/types'
import { useText } from '@/i18n'
import { Status } from '@/ui/Status'

/** Four sums that say whether anything needs a look. */
export function HealthStrip({ data }: { data: Overview }) {
  const t = useText()
  const { deployments, instances, nodes, jobs } = data
  const readyNodes = nodes.filter((node) => node.state === 'ready').length
  const tiles = [
    {
      name: t.overview.deployments,
      to: '/deployments',
      value: t.overview.ready(deployments.ready, deployments.total),
      state:
        deployments.problems.length > 0
          ? worst(deployments.problems.map((one) => one.state))
          : fullState(deployments),
    },
    {
      name: t.overview.instances,
      to: '/deployments',
      value: t.overview.ready(instances.ready, instances.total),
      state: fullState(instances),
    },
    {
      name: t.overview.nodes,
      to: '/nodes',
      value: t.overview.ready(readyNodes, nodes.length),
      state: nodes.length === 0 ? 'lost' : worst(nodes.map((node) => node.state)),
    },
    {
      name: t.overview.jobs,
      to: jobs.failed_24h > 0 ? '/jobs?state=errored' : '/jobs',
      value: jobs.failed_24h > 0 ? t.overview.failed24h(jobs.failed_24h) : t.overview.running(jobs.running),
      state: jobs.failed_24h > 0 ? 'errored' : jobs.running > 0 ? 'running' : 'ready',
      word: jobs.failed_24h + jobs.running === 0 ? t.overview.noFailed : undefined,
    },
  ]
  return (
    <div className="tiles">
      {tiles.map((tile) => (
        <Link key={tile.name} to={tile.to} className="tile">
          <span className="muted">{tile.name}</span>
          <strong className="tile-value">{tile.value}</strong>
          <Status state={tile.state} word={tile.word} />
        </Link>
      ))}
    </div>
  )
}

const ORDER = [
  'failed',
  'lost',
  'degraded',
  'suspect',
  'unreachable',
  'cordoned',
  'draining',
  'starting',
  'deleting',
]

function worst(states: string[]): string {
  return ORDER.find((state) => states.includes(state)) ?? states[0] ?? 'ready'
}

function fullState({ ready, total }: { ready: number; total: number }): string {
  if (total === 0) return 'stopped'
  return ready === total ? 'ready' : 'degraded'
}
