import { DownloadOutlined } from '@ant-design/icons'
import { Button, Dropdown, Popconfirm } from 'antd'
import { Link, useNavigate } from 'react-router'
import {
  isEnded,
  type RunDetail,
  type TargetInput,
  useCancelRun,
  useDownloadFile,
  useSetBaseline,
  useStartRun,
} from '@/api/evaluations'
import { useMayChange } from '@/api/session'
import { useText } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { useAct } from '@/ui/useAct'
import { DOWNLOADS } from './runText'

export function RunActions({ run }: { run: RunDetail }) {
  const text = useEvaluationText().detail
  const act = useAct()
  const mayChange = useMayChange()
  const again = useRunAgain(run)
  const baseline = useSetBaseline()
  if (!isEnded(run.state)) return <Cancel run={run} />
  const measured = run.state === 'completed' && Object.keys(run.figures).length > 0
  return (
    <>
      <Downloads run={run} />
      {measured && (
        <Link to={`/evaluations/compare?runs=${[run.baseline, run.id].filter(Boolean).join(',')}`}>
          <Button>{text.compare}</Button>
        </Link>
      )}
      {measured && (
        <Button
          disabled={!mayChange}
          loading={baseline.isPending}
          onClick={() =>
            baseline.mutate(run.id, { onSuccess: () => act.done(text.baselineSet), onError: act.failed })
          }
        >
          {text.setBaseline}
        </Button>
      )}
      <Button
        type="primary"
        disabled={!mayChange || run.target.id === null}
        loading={again.pending}
        onClick={again.start}
      >
        {text.again}
      </Button>
    </>
  )
}

/** The suite once more on the same target, with a seed drawn fresh; the page then shows the new run. */
export function useRunAgain(run: RunDetail) {
  const navigate = useNavigate()
  const act = useAct()
  const start = useStartRun()
  return {
    pending: start.isPending,
    start: () =>
      start.mutate(
        { suite: run.suite, ...targetOf(run) },
        { onSuccess: (made) => navigate(`/evaluations/runs/${made.id}`), onError: act.failed },
      ),
  }
}

export function targetOf({ target }: Pick<RunDetail, 'target'>): TargetInput {
  return target.kind === 'endpoint' ? { endpoint: target.id ?? '' } : { deployment: target.id ?? '' }
}

function Cancel({ run }: { run: RunDetail }) {
  const t = useText()
  const text = useEvaluationText().detail
  const act = useAct()
  const mayChange = useMayChange()
  const cancel = useCancelRun(run.id)
  return (
    <Popconfirm
      title={text.cancel}
      description={<div className="confirm-text">{text.cancelEffect}</div>}
      okText={text.cancel}
      cancelText={t.common.close}
      okButtonProps={{ danger: true }}
      onConfirm={() => cancel.mutate(undefined, { onError: act.failed })}
    >
      <Button danger disabled={!mayChange} loading={cancel.isPending}>
        {text.cancel}
      </Button>
    </Popconfirm>
  )
}

function Downloads({ run }: { run: RunDetail }) {
  const text = useEvaluationText().detail
  const act = useAct()
  const download = useDownloadFile(run.id)
  const files = run.files.flatMap((file) => {
    const kind = DOWNLOADS.find(({ ends }) => file.name.endsWith(ends))
    if (!kind) return []
    const part = run.parts.length > 1 ? ` (${file.name.split('/')[0]})` : ''
    return [{ key: file.name, label: `${text.files[kind.key]}${part}` }]
  })
  if (files.length === 0) return null
  return (
    <Dropdown
      menu={{ items: files, onClick: ({ key }) => download.mutate(key, { onError: act.failed }) }}
      trigger={['click']}
    >
      <Button icon={<DownloadOutlined />} loading={download.isPending}>
        {text.downloads}
      </Button>
    </Dropdown>
  )
}
