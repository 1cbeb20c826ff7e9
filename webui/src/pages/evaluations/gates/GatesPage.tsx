import { PlusOutlined, SafetyCertificateOutlined } from '@ant-design/icons'
import { Button, Card } from 'antd'
import { useState } from 'react'
import { Link } from 'react-router'
import { type Gate, useGates, useSuites } from '@/api/evaluations'
import { useSession } from '@/api/session'
import { useEvaluationText } from '@/i18n/evaluations'
import { EmptyState } from '@/ui/EmptyState'
import { Loaded } from '@/ui/Page'
import { EvaluationPage } from '../EvaluationPage'
import { BaselineTable } from './BaselineTable'
import { GateDrawer } from './GateDrawer'
import { GateRows } from './GateRows'

/** Gates are an admin's to set: they hold back what members may otherwise do. */
export function useMayGate(): boolean {
  const { user, team } = useSession()
  return user.is_admin || team?.role === 'admin'
}

export function GatesPage() {
  const text = useEvaluationText()
  const mayGate = useMayGate()
  const gates = useGates()
  const suites = useSuites()
  const [edited, setEdited] = useState<Gate | 'new' | null>(null)
  const noSuites = suites.data?.results.length === 0
  const create = (
    <Button
      type="primary"
      icon={<PlusOutlined />}
      disabled={!mayGate || noSuites}
      onClick={() => setEdited('new')}
    >
      {text.gates.create}
    </Button>
  )
  return (
    <EvaluationPage title={text.gates.title} lead={text.gates.lead} actions={create}>
      <div className="stack">
        <Loaded query={gates}>
          {({ results }) =>
            results.length === 0 ? (
              <EmptyState
                icon={<SafetyCertificateOutlined />}
                title={text.gates.emptyTitle}
                text={noSuites ? text.gates.noSuites : text.gates.emptyText}
                action={
                  noSuites ? (
                    <Link to="/evaluations?new=load">
                      <Button type="primary">{text.runs.start}</Button>
                    </Link>
                  ) : (
                    create
                  )
                }
              />
            ) : (
              <GateRows gates={results} onEdit={setEdited} />
            )
          }
        </Loaded>
        <Card size="small" title={text.gates.baselines}>
          <p className="muted card-lead">{text.gates.baselinesLead}</p>
          <BaselineTable />
        </Card>
      </div>
      {edited !== null && (
        <GateDrawer gate={edited === 'new' ? null : edited} onClose={() => setEdited(null)} />
      )}
    </EvaluationPage>
  )
}
