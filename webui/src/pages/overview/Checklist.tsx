import { CheckCircleFilled } from '@ant-design/icons'
import { Button, Card } from 'antd'
import { useState } from 'react'
import { Link } from 'react-router'
import { useChecklist } from '@/api/operations'
import type { ChecklistStep } from '@/api/types'
import { useText } from '@/i18n'

const ORDER: ChecklistStep['key'][] = ['model', 'deployment', 'chat', 'key']
const WHERE: Record<ChecklistStep['key'], string> = {
  model: '/models?import=demo',
  deployment: '/deployments/new',
  chat: '/playground',
  key: '/keys?create=1',
}

/** The way of a newcomer, until it is walked. */
export function Checklist() {
  const t = useText()
  const checklist = useChecklist()
  const [hidden, setHidden] = useState(false)
  const steps = checklist.data
  if (!steps || hidden || steps.every((step) => step.done)) return null
  const done = new Set(steps.filter((step) => step.done).map((step) => step.key))
  const next = ORDER.find((key) => !done.has(key))
  const texts: Record<ChecklistStep['key'], string> = {
    model: t.checklist.modelText,
    deployment: t.checklist.deploymentText,
    chat: t.checklist.chatText,
    key: t.checklist.keyText,
  }
  return (
    <Card
      className="checklist"
      title={
        <>
          {t.checklist.title} <span className="muted small">{t.checklist.lead(done.size, steps.length)}</span>
        </>
      }
      extra={
        <Button type="text" size="small" onClick={() => setHidden(true)}>
          {t.checklist.hide}
        </Button>
      }
    >
      <ol className="checklist-steps">
        {ORDER.map((key, index) => (
          <li key={key} className={done.has(key) ? 'done' : key === next ? 'next' : ''}>
            <span className="checklist-mark" aria-hidden>
              {done.has(key) ? <CheckCircleFilled className="tone-ok" /> : index + 1}
            </span>
            <div>
              <strong>
                {t.checklist[key]}
                {done.has(key) && <span className="visually-hidden"> ({t.states.succeeded})</span>}
              </strong>
              <div className="muted small">{texts[key]}</div>
              {!done.has(key) && (
                <Link to={WHERE[key]}>
                  <Button size="small" type={key === next ? 'primary' : 'default'} className="checklist-go">
                    {t.checklist.go[key]}
                  </Button>
                </Link>
              )}
            </div>
          </li>
        ))}
      </ol>
    </Card>
  )
}
