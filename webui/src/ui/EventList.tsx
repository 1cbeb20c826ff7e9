import { Timeline } from 'antd'
import type { Event } from '@/api/types'
import { useSaid, useText } from '@/i18n'
import { Time } from './Time'

function colorOf(kind: string): string {
  if (/fail|error|lost|unreachable/.test(kind)) return 'red'
  if (/ready|succeed|started|created/.test(kind)) return 'green'
  return 'gray'
}

/** Newest first. */
export function EventList({ events }: { events: Event[] }) {
  const t = useText()
  const said = useSaid()
  if (events.length === 0) return <p className="muted">{t.common.noEvents}</p>
  return (
    <Timeline
      className="events"
      items={[...events]
        .sort((a, b) => b.id - a.id)
        .map((event) => ({
          key: event.id,
          color: colorOf(event.kind),
          content: (
            <>
              {said(event.text)}
              <div className="muted small">
                <Time at={event.created_at} /> {event.actor && t.common.by(event.actor)}
              </div>
            </>
          ),
        }))}
    />
  )
}
