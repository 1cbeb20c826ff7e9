import { Button, Popconfirm, Space } from 'antd'
import { useNodeAction } from '@/api/operations'
import { useSession } from '@/api/session'
import type { Node } from '@/api/types'
import { useText } from '@/i18n'
import { useAct } from '@/ui/useAct'

/** Nodes belong to the installation: only its administrators take them out of use. */
export function NodeActions({ node, size = 'small' }: { node: Node; size?: 'small' | 'middle' }) {
  const t = useText()
  const act = useAct()
  const { user, team } = useSession()
  const action = useNodeAction()
  const allowed = user.is_admin || team?.role === 'admin'
  const out = node.cordoned || node.draining
  const buttons = out
    ? [{ key: 'uncordon' as const, label: t.nodes.uncordon, effect: t.nodes.uncordonEffect }]
    : [
        { key: 'cordon' as const, label: t.nodes.cordon, effect: t.nodes.cordonEffect },
        { key: 'drain' as const, label: t.nodes.drain, effect: t.nodes.drainEffect(node.instances.length) },
      ]
  return (
    <Space>
      {buttons.map(({ key, label, effect }) => (
        <Popconfirm
          key={key}
          title={`${label}: ${node.name}`}
          description={<div className="confirm-text">{effect}</div>}
          okText={label}
          cancelText={t.common.cancel}
          okButtonProps={{ danger: key === 'drain' }}
          onConfirm={() => action.mutate({ id: node.id, act: key }, { onError: act.failed })}
        >
          <Button size={size} disabled={!allowed} danger={key === 'drain'}>
            {label}
          </Button>
        </Popconfirm>
      ))}
    </Space>
  )
}
