// The samples of quality runs: files of one JSON object a line.

import { useQuery } from '@tanstack/react-query'
import { address, requestHeaders, toError } from './client'
import { isEnded, type RunDetail } from './evaluations'
import type { QualityTask, Sample } from './evaluationTypes'

/** A file of samples: one JSON object a line; a line that was cut off by a kill is left out. */
export function readSamples(text: string): Sample[] {
  return text.split('\n').flatMap((line) => {
    if (line.trim() === '') return []
    try {
      return [JSON.parse(line) as Sample]
    } catch {
      return []
    }
  })
}

const NEVER = Number.POSITIVE_INFINITY

type Kept = Pick<RunDetail, 'state' | 'files' | 'files_removed_at'>
type Named = Pick<QualityTask, 'samples'>

/** Whether a task's samples can be read: a run keeps its files when it ends, and not for ever. */
export function samplesOf(run: Kept, task: Named): 'there' | 'later' | 'removed' | 'none' {
  if (run.files.some((file) => file.name === fileOf(task))) return 'there'
  if (!isEnded(run.state)) return 'later'
  return run.files_removed_at ? 'removed' : 'none'
}

function fileOf(task: Named): string {
  return `quality/${task.samples}`
}

/** The samples of a task, from the file that its run left; undefined asks nothing. */
export function useSamples(run: RunDetail | undefined, task: QualityTask | undefined) {
  const name = task?.samples ? fileOf(task) : ''
  const there = run !== undefined && task !== undefined && samplesOf(run, task) === 'there'
  return useQuery({
    queryKey: ['samples', run?.id, name],
    queryFn: async ({ signal }) =>
      readSamples(await textOf(`evaluations/runs/${run?.id}/files/${name}`, signal)),
    enabled: there,
    staleTime: run && isEnded(run.state) ? NEVER : 0,
  })
}

async function textOf(path: string, signal: AbortSignal): Promise<string> {
  const response = await fetch(address(path), {
    headers: requestHeaders(false),
    credentials: 'same-origin',
    signal,
  })
  if (!response.ok) throw await toError(response)
  return response.text()
}
