import { Button, Card, Popconfirm, Select } from 'antd'
import { useState } from 'react'
import { useSearchParams } from 'react-router'
import { useDeletePlan, useMakePlan, usePlan, usePlans } from '@/api/planner'
import { useMayChange } from '@/api/session'
import { useText } from '@/i18n'
import { usePlannerText } from '@/i18n/planner'
import { Loaded, Page } from '@/ui/Page'
import { useAct } from '@/ui/useAct'
import { useUrlState } from '@/ui/useUrlState'
import { PlanFields } from './PlanFields'
import { PlanView } from './PlanView'
import './planner.css'
import '../evaluations/evaluations.css'

export function PlannerPage() {
  const text = usePlannerText()
  const [id, setId] = useUrlState('plan')
  const [params] = useSearchParams()
  const make = useMakePlan()
  return (
    <Page title={text.title} lead={text.lead}>
      <div className="planner">
        <PlanFields
          version={params.get('version') ?? undefined}
          pending={make.isPending}
          error={make.error}
          onPlan={(request) => make.mutate(request, { onSuccess: (plan) => setId(plan.id) })}
        />
        <div className="planner-answer">
          <KeptPlans id={id} onChoose={setId} />
          {id === '' ? (
            <Card size="small">
              <p className="muted run-note">{text.empty}</p>
            </Card>
          ) : (
            <Answer key={id} id={id} />
          )}
        </div>
      </div>
    </Page>
  )
}

function Answer({ id }: { id: string }) {
  const plan = usePlan(id)
  return <Loaded query={plan}>{(data) => <PlanView plan={data} />}</Loaded>
}

/** Plans that were made before: each can be looked at again, with its load test beside it. */
function KeptPlans({ id, onChoose }: { id: string; onChoose: (id: string) => void }) {
  const t = useText()
  const text = usePlannerText()
  const act = useAct()
  const mayChange = useMayChange()
  const plans = usePlans()
  const remove = useDeletePlan()
  const [removed, setRemoved] = useState('')
  const known = plans.data?.results.filter((plan) => plan.id !== removed) ?? []
  if (known.length === 0) return null
  return (
    <div className="filters">
      <Select
        className="run-picker"
        aria-label={text.kept}
        placeholder={text.kept}
        value={known.some((plan) => plan.id === id) ? id : undefined}
        onChange={onChoose}
        showSearch={{ optionFilterProp: 'label' }}
        options={known.map((plan) => ({ value: plan.id, label: plan.name }))}
      />
      {id !== '' && (
        <Popconfirm
          title={t.common.delete}
          description={<div className="confirm-text">{text.deleteEffect}</div>}
          okText={t.common.delete}
          cancelText={t.common.close}
          okButtonProps={{ danger: true }}
          onConfirm={() =>
            remove.mutate(id, {
              onSuccess: () => {
                setRemoved(id)
                onChoose('')
              },
              onError: act.failed,
            })
          }
        >
          <Button danger disabled={!mayChange} loading={remove.isPending}>
            {t.common.delete}
          </Button>
        </Popconfirm>
      )}
    </div>
  )
}
