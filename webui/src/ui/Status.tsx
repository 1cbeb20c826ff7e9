import {
  CheckCircleFilled,
  ClockCircleFilled,
  CloseCircleFilled,
  ExclamationCircleFilled,
  SyncOutlined,
} from '@ant-design/icons'
import { Tag, Tooltip } from 'antd'
import type { ReactNode } from 'react'
import { type Dictionary, useSaid, useText } from '@/i18n'

export type Tone = 'ok' | 'working' | 'warning' | 'error' | 'idle'
type State = keyof Dictionary['states']

/** Five tones for all states of all objects; a tone is never shown without its icon and word. */
const TONES: Record<State, Tone> = {
  ready: 'ok',
  succeeded: 'ok',
  completed: 'ok',
  active: 'ok',
  starting: 'working',
  scheduled: 'working',
  draining: 'working',
  deleting: 'working',
  running: 'working',
  cancelling: 'working',
  importing: 'working',
  degraded: 'warning',
  unreachable: 'warning',
  suspect: 'warning',
  rejected: 'warning',
  cordoned: 'warning',
  expired: 'warning',
  failed: 'error',
  errored: 'error',
  lost: 'error',
  incomplete: 'warning',
  pending: 'idle',
  waiting: 'idle',
  queued: 'idle',
  stopped: 'idle',
  cancelled: 'idle',
  revoked: 'idle',
}

const LOOKS: Record<Tone, { color: string; icon: ReactNode }> = {
  ok: { color: 'success', icon: <CheckCircleFilled /> },
  working: { color: 'processing', icon: <SyncOutlined spin /> },
  warning: { color: 'warning', icon: <ExclamationCircleFilled /> },
  error: { color: 'error', icon: <CloseCircleFilled /> },
  idle: { color: 'default', icon: <ClockCircleFilled /> },
}

export function toneOf(state: string): Tone {
  return TONES[state as State] ?? 'idle'
}

/** State as icon and word; the reason is said on hover and focus, and in full by `StatusLine`. `word`: says more than
    the state's own. */
export function Status({ state, reason, word }: { state: string; reason?: string; word?: string }) {
  const t = useText()
  const said = useSaid()
  const { color, icon } = LOOKS[toneOf(state)]
  const tag = (
    <Tag color={color} icon={icon} className="status" tabIndex={reason ? 0 : undefined}>
      {word ?? t.states[state as State] ?? state}
    </Tag>
  )
  return reason ? <Tooltip title={said(reason)}>{tag}</Tooltip> : tag
}

/** State with its reason as a sentence beside it. */
export function StatusLine({ state, reason }: { state: string; reason: string }) {
  const said = useSaid()
  return (
    <span className="status-line">
      <Status state={state} />
      {reason && <span className="muted">{said(reason)}</span>}
    </span>
  )
}
