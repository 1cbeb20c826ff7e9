import { Form, Input } from 'antd'
import { Link } from 'react-router'
import { ApiError } from '@/api/client'
import { useSession } from '@/api/session'
import { useText } from '@/i18n'

/** Whether a gate has stopped it. */
export function isRefusal(error: unknown): boolean {
  return error instanceof ApiError && error.code === 'gate_not_met'
}

/** The way to the gate that has stopped something, and for admins past it: the form's `override`, which is audited. */
export function PastGate() {
  const t = useText()
  const { user, team } = useSession()
  const isAdmin = user.is_admin || team?.role === 'admin'
  return (
    <>
      <p>
        <Link to="/evaluations/gates">{t.models.detail.seeGates}</Link>
      </p>
      {isAdmin && (
        <Form.Item name="override" label={t.models.detail.override} extra={t.models.detail.overrideHint}>
          <Input maxLength={500} />
        </Form.Item>
      )}
    </>
  )
}
