import { CommentOutlined } from '@ant-design/icons'
import { Button, Switch, Tooltip } from 'antd'
import { useState } from 'react'
import { Link, useSearchParams } from 'react-router'
import { useDeployments } from '@/api/deployments'
import type { Deployment } from '@/api/types'
import { useText } from '@/i18n'
import { useSpeculationText } from '@/i18n/speculation'
import { EmptyState } from '@/ui/EmptyState'
import { Loaded, Page } from '@/ui/Page'
import { useUrlState } from '@/ui/useUrlState'
import { CodeDrawer } from './CodeDrawer'
import { Composer } from './Composer'
import { conversation, useConversation } from './conversation'
import { LaneBar } from './LaneBar'
import { ParametersDrawer } from './ParametersDrawer'
import { Turns } from './Turns'
import './playground.css'

export function Playground() {
  const t = useText()
  const deployments = useDeployments()
  return (
    <Loaded query={deployments}>
      {({ results }) =>
        results.length === 0 ? (
          <Page title={t.playground.title}>
            <EmptyState
              icon={<CommentOutlined />}
              title={t.playground.emptyTitle}
              text={t.playground.emptyText}
              action={
                <Link to="/deployments/new">
                  <Button type="primary">{t.deployments.create}</Button>
                </Link>
              }
            />
          </Page>
        ) : (
          <Chat deployments={results} />
        )
      }
    </Loaded>
  )
}

function serves(deployment: Deployment | undefined): boolean {
  return deployment?.state === 'ready' || deployment?.state === 'degraded'
}

/** The deployments that are compared stand in the address, in order: `?model=a&model=b`. */
function useLanes(deployments: Deployment[]): [string[], (lanes: string[]) => void] {
  const [params, setParams] = useSearchParams()
  const asked = [...new Set(params.getAll('model'))].slice(0, 4)
  const fallback = deployments.find(serves) ?? deployments[0]
  const lanes = asked.length > 0 ? asked : fallback ? [fallback.name] : []
  return [
    lanes,
    (next) =>
      setParams(
        (previous) => [
          ...[...previous].filter(([name]) => name !== 'model'),
          ...next.map((name): [string, string] => ['model', name]),
        ],
        { replace: true },
      ),
  ]
}

function Chat({ deployments }: { deployments: Deployment[] }) {
  const t = useText()
  const [lanes, setLanes] = useLanes(deployments)
  const { turns, parameters, overHttp } = useConversation()
  const speculation = useSpeculationText()
  const [guessed, setGuessed] = useUrlState('guessed')
  const tinted = guessed === 'shown'
  const [drawer, setDrawer] = useState<'parameters' | 'code' | null>(null)
  // Every column is asked once one can answer: where a deployment is not ready, its column says why.
  const asked = lanes.some((lane) => serves(deployments.find(({ name }) => name === lane))) ? lanes : []
  return (
    <div className="chat">
      <title>{`${t.playground.title} · Tursiops`}</title>
      <div className="chat-head">
        <h1>{t.playground.title}</h1>
        <span className="grow" />
        {overHttp && <span className="muted small">{t.playground.transportSse}</span>}
        <Tooltip title={speculation.chat.toggleHint}>
          <span className="switch">
            <Switch
              size="small"
              checked={tinted}
              aria-label={speculation.chat.toggle}
              onChange={(on) => setGuessed(on ? 'shown' : '')}
            />
            {speculation.chat.toggle}
          </span>
        </Tooltip>
        <Button onClick={() => setDrawer('parameters')}>{t.playground.parameters}</Button>
        <Button onClick={() => setDrawer('code')}>{t.playground.code}</Button>
        <Button onClick={() => conversation.clear()} disabled={turns.length === 0}>
          {t.playground.clear}
        </Button>
      </div>
      <LaneBar lanes={lanes} deployments={deployments} onLanes={setLanes} />
      <Turns
        turns={turns}
        lanes={lanes}
        tinted={tinted}
        onSuggestion={(prompt) => conversation.ask(prompt, asked)}
      />
      <Composer models={asked} turns={turns} />
      <ParametersDrawer
        open={drawer === 'parameters'}
        parameters={parameters}
        onClose={() => setDrawer(null)}
      />
      <CodeDrawer
        open={drawer === 'code'}
        models={lanes}
        turns={turns}
        parameters={parameters}
        sources={tinted}
        onClose={() => setDrawer(null)}
      />
    </div>
  )
}
