import { DownloadOutlined } from '@ant-design/icons'
import { Button, Switch } from 'antd'
import { useLayoutEffect, useRef, useState } from 'react'
import { useLogTail } from '@/api/log'
import { useText } from '@/i18n'
import { ErrorNotice } from './ErrorNotice'

const NEAR_END_PX = 24

/** Live tail of a log. It follows the end until the reader scrolls up. */
export function LogView({ path, name }: { path: string; name: string }) {
  const t = useText()
  const log = useLogTail(path)
  const box = useRef<HTMLPreElement>(null)
  const [follow, setFollow] = useState(true)
  const [wrap, setWrap] = useState(true)
  const text = log.data?.text ?? ''

  // biome-ignore lint/correctness/useExhaustiveDependencies: new text moves the end
  useLayoutEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight
  }, [text, follow, wrap])

  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current ?? {
      scrollTop: 0,
      scrollHeight: 0,
      clientHeight: 0,
    }
    setFollow(scrollHeight - scrollTop - clientHeight < NEAR_END_PX)
  }
  const download = () => {
    const url = URL.createObjectURL(new Blob([text], { type: 'text/plain' }))
    const link = document.createElement('a')
    link.href = url
    link.download = `${name.replaceAll(/[^\w.-]+/g, '-')}.log`
    link.click()
    URL.revokeObjectURL(url)
  }
  return (
    <div className="log">
      <ErrorNotice error={log.error} onRetry={() => log.refetch()} />
      <div className="log-tools">
        <span className="switch">
          <Switch size="small" checked={follow} onChange={setFollow} aria-label={t.log.follow} />{' '}
          {t.log.follow}
        </span>
        <span className="switch">
          <Switch size="small" checked={wrap} onChange={setWrap} aria-label={t.log.wrap} /> {t.log.wrap}
        </span>
        <Button size="small" icon={<DownloadOutlined />} onClick={download} disabled={text === ''}>
          {t.log.download}
        </Button>
      </div>
      <pre
        ref={box}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-label={t.log.label(name)}
        className={wrap ? 'wrap' : ''}
        onScroll={onScroll}
      >
        {log.data?.cut && <span className="muted">{`${t.log.cut}\n`}</span>}
        {text || <span className="muted">{log.isPending ? t.common.loading : t.log.empty}</span>}
        {log.data?.ended && text && <span className="muted">{`\n— ${t.log.ended}`}</span>}
      </pre>
    </div>
  )
}
