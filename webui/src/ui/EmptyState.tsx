import type { ReactNode } from 'react'

/** Says what belongs here and how to get it. */
export function EmptyState({
  icon,
  title,
  text,
  action,
}: {
  icon: ReactNode
  title: string
  text: ReactNode
  action?: ReactNode
}) {
  return (
    <div className="empty">
      <div className="empty-icon" aria-hidden>
        {icon}
      </div>
      <h2>{title}</h2>
      <p className="muted">{text}</p>
      {action}
    </div>
  )
}
