import { Skeleton } from 'antd'
import { type ReactNode, useEffect, useRef } from 'react'
import { Link } from 'react-router'
import { ErrorNotice } from './ErrorNotice'

let firstPage = true

/** Heading, actions and body of a page. After a navigation the heading takes the focus, so that readers say it. */
export function Page(props: {
  title: string
  lead?: ReactNode
  parent?: { title: string; to: string }
  beside?: ReactNode
  actions?: ReactNode
  children: ReactNode
}) {
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    if (!firstPage) heading.current?.focus({ preventScroll: true })
    firstPage = false
  }, [])
  return (
    <div className="page">
      <title>{`${props.title} · Tursiops`}</title>
      <div className="page-head">
        <div>
          {props.parent && (
            <Link to={props.parent.to} className="page-parent">
              {props.parent.title}
            </Link>
          )}
          <div className="page-title">
            <h1 ref={heading} tabIndex={-1}>
              {props.title}
            </h1>
            {props.beside}
          </div>
          {props.lead && <p className="muted">{props.lead}</p>}
        </div>
        {props.actions && <div className="page-actions">{props.actions}</div>}
      </div>
      {props.children}
    </div>
  )
}

interface Loading<T> {
  data: T | undefined
  error: Error | null
  refetch: () => unknown
}

/** Skeleton, error with a way on, or the content. Old data stays visible under an error of its refresh. */
export function Loaded<T>({
  query,
  children,
  rows = 6,
}: {
  query: Loading<T>
  children: (data: T) => ReactNode
  rows?: number
}) {
  return (
    <>
      <ErrorNotice error={query.error} onRetry={() => query.refetch()} />
      {query.data !== undefined
        ? children(query.data)
        : query.error === null && <Skeleton active title={false} paragraph={{ rows }} />}
    </>
  )
}
