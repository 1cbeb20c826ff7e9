import { DashboardOutlined, PlusOutlined } from '@ant-design/icons'
import { Button, Select } from 'antd'
import { useState } from 'react'
import { Link } from 'react-router'
import { useDeployments } from '@/api/deployments'
import { type RunState, useRuns, useSuites } from '@/api/evaluations'
import { useMayChange } from '@/api/session'
import { useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { EmptyState } from '@/ui/EmptyState'
import { Loaded } from '@/ui/Page'
import { useUrlState } from '@/ui/useUrlState'
import { EvaluationPage } from '../EvaluationPage'
import { RunDrawer } from '../form/RunDrawer'
import { RunTable } from './RunTable'
import { SuiteCard } from './SuiteCard'

const STATES: RunState[] = ['waiting', 'queued', 'running', 'completed', 'incomplete', 'cancelled', 'errored']

export function BenchmarksPage() {
  const t = useText()
  const text = useEvaluationText().runs
  const mayChange = useMayChange()
  const [state, setState] = useUrlState('state')
  const [suite, setSuite] = useUrlState('suite')
  const [page, setPage] = useUrlState('page', '1')
  const [asked, setAsked] = useUrlState('new')
  const [chosen, setChosen] = useState<string[]>([])
  const suites = useSuites()
  const runs = useRuns({ state, suite, page: Number(page) || 1 })
  const filtered = state !== '' || suite !== ''
  const filter = (set: (value: string) => void) => (value: string) => {
    setPage('1')
    set(value)
  }
  return (
    <EvaluationPage
      title={text.title}
      lead={text.lead}
      actions={
        <Button type="primary" icon={<PlusOutlined />} disabled={!mayChange} onClick={() => setAsked('load')}>
          {text.start}
        </Button>
      }
    >
      <Loaded query={runs}>
        {(data) =>
          data.count === 0 && !filtered ? (
            <Empty onStart={() => setAsked('load')} />
          ) : (
            <>
              <div className="filters">
                <Select
                  className="filter-select"
                  aria-label={t.common.state}
                  value={state}
                  onChange={filter(setState)}
                  options={[
                    { value: '', label: t.jobs.anyState },
                    ...STATES.map((value) => ({ value, label: t.states[value] })),
                  ]}
                />
                <Select
                  className="filter-select filter-wide"
                  aria-label={text.suite}
                  value={suite}
                  onChange={filter(setSuite)}
                  showSearch={{ optionFilterProp: 'label' }}
                  options={[
                    { value: '', label: text.anySuite },
                    ...(suites.data?.results ?? []).map((one) => ({ value: one.id, label: one.name })),
                  ]}
                />
                <span className="grow" />
                {chosen.length > 1 ? (
                  <Link to={`/evaluations/compare?runs=${chosen.join(',')}`}>
                    <Button>{text.compareChosen(chosen.length)}</Button>
                  </Link>
                ) : (
                  <span className="muted small">{text.compareHint}</span>
                )}
              </div>
              <RunTable
                runs={data}
                page={Number(page) || 1}
                onPage={(next) => setPage(String(next))}
                chosen={chosen}
                onChosen={setChosen}
              />
            </>
          )
        }
      </Loaded>
      <SuiteCard />
      {asked !== '' && (
        <RunDrawer target={asked === 'load' ? undefined : asked} onClose={() => setAsked('')} />
      )}
    </EvaluationPage>
  )
}

function Empty({ onStart }: { onStart: () => void }) {
  const text = useEvaluationText().runs
  const mayChange = useMayChange()
  const deployments = useDeployments()
  const none = deployments.data?.results.length === 0
  return (
    <EmptyState
      icon={<DashboardOutlined />}
      title={text.emptyTitle}
      text={none ? text.emptyNoDeployment : text.emptyText}
      action={
        none ? (
          <Link to="/deployments/new">
            <Button type="primary" disabled={!mayChange}>
              {text.deploy}
            </Button>
          </Link>
        ) : (
          <Button type="primary" disabled={!mayChange} onClick={onStart}>
            {text.start}
          </Button>
        )
      }
    />
  )
}
