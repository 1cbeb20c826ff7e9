import { Button, Result } from 'antd'
import { Link, useRouteError } from 'react-router'
import { useText } from '@/i18n'

export function NotFound() {
  const t = useText()
  return (
    <Result
      status="404"
      title={t.errors.pageTitle}
      subTitle={t.errors.pageHint}
      extra={
        <Link to="/">
          <Button type="primary">{t.errors.home}</Button>
        </Link>
      }
    />
  )
}

/** A page that threw, or whose code is gone since an update: the rest of the console stays. */
export function Crash() {
  const t = useText()
  const error = useRouteError()
  const text = error instanceof Error ? error.message : String(error)
  const lostChunk = /dynamically imported module|module script/i.test(text)
  return (
    <Result
      status="error"
      title={t.errors.crashTitle}
      subTitle={
        <>
          <code>{lostChunk ? t.errors.chunk : text}</code>
          <br />
          {t.errors.crashHint}
        </>
      }
      extra={
        <Button type="primary" onClick={() => window.location.reload()}>
          {t.errors.reload}
        </Button>
      }
    />
  )
}
