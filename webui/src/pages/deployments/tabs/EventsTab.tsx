import { useDeploymentEvents } from '@/api/deployments'
import type { Deployment } from '@/api/types'
import { EventList } from '@/ui/EventList'
import { Loaded } from '@/ui/Page'

export function EventsTab({ deployment }: { deployment: Deployment }) {
  const events = useDeploymentEvents(deployment.id)
  return <Loaded query={events}>{(data) => <EventList events={data.events} />}</Loaded>
}
