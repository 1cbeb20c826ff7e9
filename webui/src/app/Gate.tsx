import { Spin } from 'antd'
import { lazy, Suspense } from 'react'
import { useSessionQuery } from '@/api/session'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { Shell } from './Shell'

const SignIn = lazy(async () => ({ default: (await import('@/pages/sign-in/SignIn')).SignIn }))

/** Sign-in stands in place of the page, so that the address, and the page behind it, are still there afterwards. */
export function Gate() {
  const session = useSessionQuery()
  const waiting = (
    <div className="centered">
      <Spin size="large" />
    </div>
  )
  if (session.data) return <Shell />
  if (session.data === null) {
    return (
      <Suspense fallback={waiting}>
        <SignIn />
      </Suspense>
    )
  }
  if (!session.error) return waiting
  return (
    <div className="centered">
      <ErrorNotice error={session.error} onRetry={() => session.refetch()} />
    </div>
  )
}
