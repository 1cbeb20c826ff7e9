import { Tooltip } from 'antd'
import { useSyncExternalStore } from 'react'
import { useLocale, useText } from '@/i18n'
import { relativeTime } from './units'

const TICK_MS = 10_000
let now = Date.now()

function subscribeClock(listener: () => void): () => void {
  // It stood still while no time was on the page.
  if (Date.now() - now > TICK_MS) now = Date.now()
  const timer = setInterval(() => {
    now = Date.now()
    listener()
  }, TICK_MS)
  return () => clearInterval(timer)
}

/** "3 minutes ago"; the full time in the user's zone and in UTC on hover. */
export function Time({ at, absent }: { at: string | null; absent?: string }) {
  const t = useText()
  const locale = useLocale()
  const clock = useSyncExternalStore(subscribeClock, () => now)
  if (at === null) return <span className="muted">{absent ?? t.common.never}</span>
  const date = new Date(at)
  // A clock that runs 10 s behind must not put what has just happened into the future.
  const [count, unit] = relativeTime(at, Math.max(clock, Math.min(date.getTime(), clock + TICK_MS)))
  const full = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'medium' }).format(date)
  const utc = date.toISOString().replace('T', ' ').slice(0, 19)
  return (
    <Tooltip
      title={
        <>
          {full}
          <br />
          {utc} {t.common.utc}
        </>
      }
    >
      <time dateTime={at}>
        {new Intl.RelativeTimeFormat(locale, { numeric: 'auto' }).format(count, unit)}
      </time>
    </Tooltip>
  )
}
