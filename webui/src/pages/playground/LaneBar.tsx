import { CloseOutlined, PlusOutlined } from '@ant-design/icons'
import { Button, Select, Tooltip } from 'antd'
import { useId } from 'react'
import type { Deployment } from '@/api/types'
import { useText } from '@/i18n'
import { Status } from '@/ui/Status'
import { effectiveDtypes } from '../deployments/effective'
import { MOST_LANES } from './conversation'

/** One chooser per column; the columns below have the same order. */
export function LaneBar(props: {
  lanes: string[]
  deployments: Deployment[]
  onLanes: (lanes: string[]) => void
}) {
  const t = useText()
  const { lanes, deployments, onLanes } = props
  const free = deployments.filter(({ name }) => !lanes.includes(name))
  const full = lanes.length >= MOST_LANES
  const barred = full ? t.playground.lanesFull : free.length === 0 ? t.playground.noneFree : ''
  const hint = useId()
  return (
    <div className="lane-bar">
      <div className="lanes" style={{ gridTemplateColumns: `repeat(${lanes.length}, minmax(0, 1fr))` }}>
        {lanes.map((lane, index) => (
          <div key={lane} className="lane-head">
            <Select
              className="lane-select"
              aria-label={t.playground.chooseModel}
              value={lane}
              onChange={(name) => onLanes(lanes.with(index, name))}
              options={[lane, ...free.map(({ name }) => name)].map((name) => ({ value: name, label: name }))}
            />
            <LaneState name={lane} deployment={deployments.find(({ name }) => name === lane)} />
            {lanes.length > 1 && (
              <Button
                type="text"
                size="small"
                icon={<CloseOutlined />}
                aria-label={t.playground.removeLane(lane)}
                onClick={() => onLanes(lanes.filter((one) => one !== lane))}
              />
            )}
          </div>
        ))}
      </div>
      {/* Barred, it keeps the focus: a disabled button could tell nobody why. */}
      <Tooltip title={barred || t.playground.addLane} placement="bottomRight">
        <Button
          className={barred ? 'barred' : undefined}
          icon={<PlusOutlined />}
          aria-label={t.playground.addLane}
          aria-disabled={barred !== ''}
          aria-describedby={barred ? hint : undefined}
          onClick={() => !barred && free[0] && onLanes([...lanes, free[0].name])}
        />
      </Tooltip>
      {barred && (
        <span id={hint} className="visually-hidden">
          {barred}
        </span>
      )}
    </div>
  )
}

function LaneState({ name, deployment }: { name: string; deployment: Deployment | undefined }) {
  const t = useText()
  if (!deployment) return <Status state="failed" reason={`${name}: ${t.playground.gone}`} />
  const dtypes = effectiveDtypes(deployment.instances).join(', ')
  return (
    <>
      <Status state={deployment.state} reason={deployment.reason} />
      {dtypes && <code className="muted">{dtypes}</code>}
    </>
  )
}
