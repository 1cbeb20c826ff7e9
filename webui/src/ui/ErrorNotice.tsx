import { Alert, Button } from 'antd'
import type { ReactNode } from 'react'
import { ApiError } from '@/api/client'
import { type Dictionary, useSaid, useText } from '@/i18n'

/** What went wrong and what to do next, in the user's language. */
export function useExplain(): (error: unknown) => { message: string; hint: string } {
  const t = useText()
  const said = useSaid()
  return (error) => {
    const { message, hint } = explain(error, t)
    return { message: said(message), hint: said(hint) }
  }
}

function explain(error: unknown, t: Dictionary): { message: string; hint: string } {
  if (!(error instanceof ApiError)) {
    return { message: error instanceof Error ? error.message : String(error), hint: t.errors.serverHint }
  }
  if (error.code === 'network') return { message: t.errors.network, hint: t.errors.networkHint }
  if (error.status >= 500) {
    return { message: error.hint ? error.message : t.errors.server, hint: error.hint || t.errors.serverHint }
  }
  if (error.status === 403) return { message: error.message, hint: error.hint || t.errors.deniedHint }
  if (error.status === 404)
    return { message: error.message || t.errors.missing, hint: error.hint || t.errors.missingHint }
  return { message: error.message, hint: error.hint }
}

export function ErrorNotice(props: { error: unknown; onRetry?: () => void; action?: ReactNode }) {
  const { error, onRetry } = props
  const t = useText()
  const explained = useExplain()
  if (!error) return null
  const { message, hint } = explained(error)
  return (
    <Alert
      type="error"
      showIcon
      role="alert"
      className="notice"
      title={message}
      description={hint || undefined}
      action={
        props.action ??
        (onRetry && (
          <Button size="small" onClick={onRetry}>
            {t.errors.retry}
          </Button>
        ))
      }
    />
  )
}
