import type { Quantization } from '@/api/quantization'
import { suggestedName } from '@/pages/deployments/fields/names'
import { formatSeconds } from '@/ui/units'

export type Outcome = 'passed' | 'failed' | 'undecided' | 'errored' | 'cancelled' | 'running' | 'queued'

/** The form of a deployment, filled in: the version, a name beside the base's, and what its files do not say. */
export function deployPath({ version, version_label, scheme, deploy }: Quantization): string {
  const model = version_label.replace(/ v\d+$/, '')
  const name = suggestedName(`${model}-${scheme.replaceAll('_', '-')}`)
  const options = Object.entries(deploy?.options ?? {}).map(
    ([option, value]) => `&option.${option}=${encodeURIComponent(String(value))}`,
  )
  return `/deployments/new?version=${version}&name=${name}${options.join('')}`
}

/** How it ended, or that it has not. A gate that was not kept is no error, and an error is no verdict. */
export function outcomeOf({ job, verdict }: Pick<Quantization, 'job' | 'verdict'>): Outcome {
  switch (job.state) {
    case 'queued':
      return 'queued'
    case 'running':
    case 'cancelling':
      return 'running'
    case 'errored':
      return 'errored'
    case 'cancelled':
      return 'cancelled'
    default:
      return verdict === 'passed' || verdict === 'failed' ? verdict : 'undecided'
  }
}

/** Time that is left, told no finer than it is known: in steps of 10 s, from two minutes on of a minute. */
export function roughly(seconds: number): string {
  const step = seconds < 120 ? 10 : 60
  return formatSeconds(Math.max(1, Math.ceil(seconds / step)) * step)
}
