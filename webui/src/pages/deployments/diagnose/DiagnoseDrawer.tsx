import { Alert, Card, Drawer } from 'antd'
import type { Instance } from '@/api/types'
import { useDiagnosisText } from '@/i18n/diagnosis'
import { instanceName } from '../effective'
import { MemoryTable } from './MemoryTable'
import { Recorder } from './Recorder'

/** `instance` comes from the address; undefined means closed. */
export function DiagnoseDrawer(props: { instance?: Instance; deployment: string; onClose: () => void }) {
  const { instance, deployment, onClose } = props
  const t = useDiagnosisText()
  const name = instance ? `${deployment} ${instanceName(instance)}` : ''
  return (
    <Drawer open={instance !== undefined} title={t.title(name)} size={720} onClose={onClose} destroyOnHidden>
      {instance?.state === 'ready' ? (
        <div className="stack">
          <MemoryTable instance={instance.id} />
          <Recorder instance={instance.id} what="trace" title={t.timeline} lead={t.timelineLead} />
          {String(instance.facts.device ?? '').startsWith('cuda') ? (
            <Recorder
              instance={instance.id}
              what="memory/snapshot"
              title={t.snapshot}
              lead={t.snapshotLead}
            />
          ) : (
            <Card title={t.snapshot} size="small">
              <span className="muted">{t.snapshotCpu}</span>
            </Card>
          )}
        </div>
      ) : (
        <Alert type="info" showIcon title={t.notReady} />
      )}
    </Drawer>
  )
}
