import { PauseCircleFilled, SyncOutlined, ThunderboltFilled } from '@ant-design/icons'
import { Tag, Tooltip } from 'antd'
import { useLiveState } from '@/api/live'
import { useText } from '@/i18n'

const LOOKS = {
  live: { color: 'success', icon: <ThunderboltFilled /> },
  connecting: { color: 'warning', icon: <SyncOutlined spin /> },
  paused: { color: 'default', icon: <PauseCircleFilled /> },
} as const

/** Says whether what is on the screen follows the platform by itself. */
export function LiveMark() {
  const t = useText()
  const state = useLiveState()
  const hints = { live: t.live.liveHint, connecting: t.live.connectingHint, paused: t.live.pausedHint }
  return (
    <Tooltip title={hints[state]}>
      <Tag {...LOOKS[state]} role="status" className="live-mark" data-state={state}>
        {t.live[state]}
      </Tag>
    </Tooltip>
  )
}
