import { Descriptions, Tooltip } from 'antd'
import { Link } from 'react-router'
import { useVersion } from '@/api/models'
import type { Deployment } from '@/api/types'
import { useText } from '@/i18n'
import { Time } from '@/ui/Time'
import { sum } from '@/ui/units'
import { effectiveDtypes } from './effective'

export function Summary({ deployment }: { deployment: Deployment }) {
  const t = useText()
  const { revision } = deployment
  const version = useVersion(revision?.version)
  const dtypes = effectiveDtypes(deployment.instances)
  const label = revision?.version_label ?? '–'
  const items = [
    {
      key: 'model',
      label: t.deployments.model,
      children: version.data ? (
        <>
          <Link to={`/models/${version.data.model}?version=${version.data.number}`}>{label}</Link>
          {version.data.quantization && <div className="muted small">{version.data.quantization}</div>}
        </>
      ) : (
        label
      ),
    },
    {
      key: 'replicas',
      label: t.deployments.replicas,
      children: (
        <span className="nowrap">
          {t.deployments.readyOf(sum(deployment.ready), sum(deployment.replicas))}
        </span>
      ),
    },
    { key: 'engine', label: t.deployments.engine, children: revision?.engine ?? '–' },
    {
      key: 'dtype',
      label: t.deployments.detail.effectiveDtype,
      children: <Dtype dtypes={dtypes} asked={revision?.dtype} />,
    },
    { key: 'revision', label: t.deployments.detail.revision, children: revision?.number ?? '–' },
    { key: 'created', label: t.common.created, children: <Time at={deployment.created_at} /> },
  ]
  return <Descriptions size="small" bordered column={{ xs: 1, sm: 2, lg: 3 }} items={items} />
}

/** What "auto" became. Dynamic int8 changes the answers a little, so it is named in full. */
function Dtype({ dtypes, asked }: { dtypes: string[]; asked: string | undefined }) {
  const t = useText()
  if (dtypes.length === 0) return <Tooltip title={t.deployments.detail.noFacts}>{asked ?? '–'}</Tooltip>
  return <>{dtypes.map((dtype) => (dtype === 'int8' ? t.deployments.detail.int8 : dtype)).join(', ')}</>
}
