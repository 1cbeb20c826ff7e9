import { Select } from 'antd'
import type { Deployment } from '@/api/types'
import { useText } from '@/i18n'
import { LogView } from '@/ui/LogView'
import { useUrlState } from '@/ui/useUrlState'
import { instanceName } from '../effective'

export function LogsTab({ deployment }: { deployment: Deployment }) {
  const t = useText()
  const [chosen, setChosen] = useUrlState('instance')
  const instance = deployment.instances.find((one) => one.id === chosen) ?? deployment.instances[0]
  if (!instance) return <p className="muted">{t.deployments.detail.noInstances}</p>
  const name = `${deployment.name} ${instanceName(instance)}`
  return (
    <>
      <div className="filters">
        <Select
          className="filter-text"
          aria-label={t.deployments.detail.chooseInstance}
          value={instance.id}
          onChange={setChosen}
          options={deployment.instances.map((one) => ({
            value: one.id,
            label: `${instanceName(one)} · ${t.states[one.state]}`,
          }))}
        />
      </div>
      <LogView key={instance.id} path={`instances/${instance.id}/log`} name={name} />
    </>
  )
}
