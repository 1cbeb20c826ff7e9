import {
  ApiOutlined,
  BarChartOutlined,
  CalculatorOutlined,
  ClusterOutlined,
  CommentOutlined,
  CompressOutlined,
  DashboardOutlined,
  DeploymentUnitOutlined,
  ExperimentOutlined,
  KeyOutlined,
  ScheduleOutlined,
} from '@ant-design/icons'
import { Menu } from 'antd'
import { Link, useLocation } from 'react-router'
import { useText } from '@/i18n'

const ENTRIES = [
  { key: 'overview', path: '/', icon: <DashboardOutlined /> },
  { key: 'models', path: '/models', icon: <DeploymentUnitOutlined /> },
  { key: 'quantize', path: '/quantize', icon: <CompressOutlined /> },
  { key: 'deployments', path: '/deployments', icon: <ApiOutlined /> },
  { key: 'playground', path: '/playground', icon: <CommentOutlined /> },
  { key: 'evaluations', path: '/evaluations', icon: <ExperimentOutlined /> },
  { key: 'planner', path: '/planner', icon: <CalculatorOutlined /> },
  { key: 'jobs', path: '/jobs', icon: <ScheduleOutlined /> },
  { key: 'keys', path: '/keys', icon: <KeyOutlined /> },
  { key: 'nodes', path: '/nodes', icon: <ClusterOutlined /> },
  { key: 'usage', path: '/usage', icon: <BarChartOutlined /> },
] as const

export function Navigation({ onNavigate }: { onNavigate?: () => void }) {
  const t = useText()
  const { pathname } = useLocation()
  const first = `/${pathname.split('/')[1] ?? ''}`
  return (
    <nav aria-label={t.nav.main}>
      <Menu
        mode="inline"
        selectedKeys={ENTRIES.filter((entry) => entry.path === first).map((entry) => entry.key)}
        onClick={onNavigate}
        items={ENTRIES.map(({ key, path, icon }) => ({
          key,
          icon,
          label: (
            <Link to={path} aria-current={path === first ? 'page' : undefined}>
              {t.nav[key]}
            </Link>
          ),
        }))}
      />
    </nav>
  )
}
