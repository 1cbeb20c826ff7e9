import type { ReactNode } from 'react'
import { NavLink } from 'react-router'
import { useEvaluationText } from '@/i18n/evaluations'
import { Page } from '@/ui/Page'
import './evaluations.css'

const PARTS = [
  { key: 'benchmarks', to: '/evaluations' },
  { key: 'compare', to: '/evaluations/compare' },
  { key: 'quality', to: '/evaluations/quality' },
  { key: 'schedules', to: '/evaluations/schedules' },
  { key: 'gates', to: '/evaluations/gates' },
] as const

/** One part of the evaluations, with the way to the others. */
export function EvaluationPage(props: {
  title: string
  lead?: ReactNode
  actions?: ReactNode
  children: ReactNode
}) {
  const text = useEvaluationText().tabs
  return (
    <Page title={props.title} lead={props.lead} actions={props.actions}>
      <nav aria-label={text.label} className="eval-tabs">
        {PARTS.map(({ key, to }) => (
          <NavLink key={key} to={to} end>
            {text[key]}
          </NavLink>
        ))}
      </nav>
      {props.children}
    </Page>
  )
}
