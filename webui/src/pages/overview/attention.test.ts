import { expect, it } from 'vitest'
import type { Overview } from '@/api/types'
import { en } from '@/i18n/en'
import { concernsOf } from './attention'

const calm = {
  deployments: { total: 1, ready: 1, problems: [] },
  nodes: [{ id: 'n1', name: 'one', state: 'cordoned', reason: 'closed' }],
  jobs: { running: 0, failed_24h: 0, recent: [], failed: [] },
} as unknown as Overview

it('finds nothing where all is as somebody wants it', () => {
  expect(concernsOf(calm, en)).toEqual([])
})

it('names deployments, silent nodes and failed jobs, each with its page', () => {
  const bad = {
    ...calm,
    deployments: { total: 1, ready: 0, problems: [{ id: 'd1', name: 'chat', state: 'failed', reason: 'x' }] },
    nodes: [...calm.nodes, { id: 'n2', name: 'two', state: 'lost', reason: 'No heartbeat.' }],
    jobs: {
      ...calm.jobs,
      failed_24h: 1,
      failed: [{ id: 'j1', title: 'Import', state: 'errored', reason: 'y' }],
    },
  } as unknown as Overview
  expect(concernsOf(bad, en).map(({ to, state }) => [to, state])).toEqual([
    ['/deployments/d1', 'failed'],
    ['/nodes/n2', 'lost'],
    ['/jobs/j1', 'errored'],
  ])
})
