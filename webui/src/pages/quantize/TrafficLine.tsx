import { Button, Popconfirm } from 'antd'
import { Link } from 'react-router'
import { useEraseTraffic, useKeptTraffic } from '@/api/quantization'
import { useMayChange } from '@/api/session'
import { useLocale, useText } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { ErrorNotice } from '@/ui/ErrorNotice'
import { formatBytes, formatCount } from '@/ui/units'
import { useAct } from '@/ui/useAct'

/** How much of the gateway's traffic is kept, by whose consent, and the way to forget it. */
export function TrafficLine() {
  const t = useText()
  const text = useQuantizeText()
  const locale = useLocale()
  const act = useAct()
  const mayChange = useMayChange()
  const kept = useKeptTraffic(true)
  const erase = useEraseTraffic()
  if (!kept.data) return <ErrorNotice error={kept.error} onRetry={() => kept.refetch()} />
  const { rows, bytes, keys } = kept.data
  return (
    <p className="traffic-line">
      <span className={rows === 0 ? 'tone-warning' : undefined}>
        {text.keptTraffic(formatCount(rows, locale), formatBytes(bytes), keys)}
      </span>{' '}
      {keys === 0 && (
        <span className="inline">
          <Link to="/keys">{text.consent}</Link>
        </span>
      )}
      {rows > 0 && (
        <Popconfirm
          title={text.erase}
          description={<div className="confirm-text">{text.eraseEffect}</div>}
          okText={text.erase}
          cancelText={t.common.close}
          okButtonProps={{ danger: true }}
          onConfirm={() => erase.mutate(undefined, { onError: act.failed })}
        >
          <Button size="small" danger disabled={!mayChange} loading={erase.isPending}>
            {text.erase}
          </Button>
        </Popconfirm>
      )}
    </p>
  )
}
