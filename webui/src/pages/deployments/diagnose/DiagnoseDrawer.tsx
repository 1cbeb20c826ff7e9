import { Alert, Card, Drawer } from 'antd'
import type { Instance } from '@/api/types'
import { useText } from '@/i18n'
import { instanceName } from '../effective'
import { MemoryTable } from './MemoryTable'
import { Recorder } from './Recorder'

/** `instance` comes from the address; undefined means closed. */
export function DiagnoseDrawer(props: { instance?: Instance; deployment: string; onClose: () => void }) {
  const { instance, deployment, onClose } = props
  const t = useText()
  const name = instance ? `${deployment} ${instanceName(instance)}` : ''
  return (
    <Drawer
      open={instance !== undefined}
      title={t.diagnosis.title(name)}
      size={720}
      onClose={onClose}
      destroyOnHidden
    >
      {instance?.state === 'ready' ? (
        <div className="stack">
          <MemoryTable instance={instance.id} />
          <Recorder
            instance={instance.id}
            what="trace"
            title={t.diagnosis.timeline}
            lead={t.diagnosis.timelineLead}
          />
          {String(instance.facts.device ?? '').startsWith('cuda') ? (
            <Recorder
              instance={instance.id}
              what="memory/snapshot"
              title={t.diagnosis.snapshot}
              lead={t.diagnosis.snapshotLead}
            />
          ) : (
            <Card title={t.diagnosis.snapshot} size="small">
              <span className="muted">{t.diagnosis.snapshotCpu}</span>
            </Card>
          )}
        </div>
      ) : (
        <Alert type="info" showIcon title={t.diagnosis.notReady} />
      )}
    </Drawer>
  )
}
