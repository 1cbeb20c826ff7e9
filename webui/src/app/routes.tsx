import { createBrowserRouter, type RouteObject } from 'react-router'
import { Crash, NotFound } from './Failures'
import { Gate } from './Gate'

/** One chunk of code per page: what nobody opens is not loaded. */
const pages: RouteObject[] = [
  { index: true, lazy: async () => ({ Component: (await import('@/pages/overview/Overview')).Overview }) },
  { path: 'models', lazy: async () => ({ Component: (await import('@/pages/models/ModelList')).ModelList }) },
  {
    path: 'models/:id',
    lazy: async () => ({ Component: (await import('@/pages/models/ModelDetail')).ModelDetailPage }),
  },
  {
    path: 'deployments',
    lazy: async () => ({ Component: (await import('@/pages/deployments/DeploymentList')).DeploymentList }),
  },
  {
    path: 'deployments/new',
    lazy: async () => ({ Component: (await import('@/pages/deployments/DeploymentForm')).NewDeployment }),
  },
  {
    path: 'deployments/:id',
    lazy: async () => ({
      Component: (await import('@/pages/deployments/DeploymentDetail')).DeploymentDetail,
    }),
  },
  {
    path: 'deployments/:id/edit',
    lazy: async () => ({ Component: (await import('@/pages/deployments/DeploymentForm')).EditDeployment }),
  },
  {
    path: 'playground',
    lazy: async () => ({ Component: (await import('@/pages/playground/Playground')).Playground }),
  },
  {
    path: 'evaluations',
    lazy: async () => ({
      Component: (await import('@/pages/evaluations/runs/BenchmarksPage')).BenchmarksPage,
    }),
  },
  {
    path: 'evaluations/runs/:id',
    lazy: async () => ({ Component: (await import('@/pages/evaluations/runs/RunDetail')).RunDetailPage }),
  },
  {
    path: 'evaluations/compare',
    lazy: async () => ({
      Component: (await import('@/pages/evaluations/compare/ComparePage')).ComparePage,
    }),
  },
  {
    path: 'evaluations/quality',
    lazy: async () => ({
      Component: (await import('@/pages/evaluations/quality/QualityPage')).QualityPage,
    }),
  },
  {
    path: 'evaluations/schedules',
    lazy: async () => ({
      Component: (await import('@/pages/evaluations/schedules/SchedulesPage')).SchedulesPage,
    }),
  },
  {
    path: 'evaluations/gates',
    lazy: async () => ({ Component: (await import('@/pages/evaluations/gates/GatesPage')).GatesPage }),
  },
  {
    path: 'planner',
    lazy: async () => ({ Component: (await import('@/pages/planner/PlannerPage')).PlannerPage }),
  },
  {
    path: 'quantize',
    lazy: async () => ({ Component: (await import('@/pages/quantize/QuantizePage')).QuantizePage }),
  },
  {
    path: 'quantize/:id',
    lazy: async () => ({ Component: (await import('@/pages/quantize/ResultsPage')).ResultsPage }),
  },
  { path: 'jobs', lazy: async () => ({ Component: (await import('@/pages/jobs/JobList')).JobList }) },
  { path: 'jobs/:id', lazy: async () => ({ Component: (await import('@/pages/jobs/JobDetail')).JobDetail }) },
  { path: 'keys', lazy: async () => ({ Component: (await import('@/pages/keys/KeyList')).KeyList }) },
  { path: 'nodes', lazy: async () => ({ Component: (await import('@/pages/nodes/NodeList')).NodeList }) },
  {
    path: 'nodes/:id',
    lazy: async () => ({ Component: (await import('@/pages/nodes/NodeDetail')).NodeDetail }),
  },
  { path: 'usage', lazy: async () => ({ Component: (await import('@/pages/usage/UsagePage')).UsagePage }) },
  { path: '*', Component: NotFound },
]

export const router = createBrowserRouter([
  {
    Component: Gate,
    ErrorBoundary: Crash,
    HydrateFallback: () => null,
    children: [{ ErrorBoundary: Crash, children: pages }],
  },
])
