import { CheckOutlined, CopyOutlined } from '@ant-design/icons'
import { Button, Tooltip } from 'antd'
import { useState } from 'react'
import { useText } from '@/i18n'

/** Also works over plain HTTP, where browsers hide navigator.clipboard. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text)
  const area = document.createElement('textarea')
  area.value = text
  area.style.position = 'fixed'
  area.style.opacity = '0'
  document.body.append(area)
  area.select()
  const done = document.execCommand('copy')
  area.remove()
  if (!done) throw new Error('copy was refused')
}

const SHOWN_MS = 1_500

export function CopyButton({ text, name, label }: { text: string; name: string; label?: string }) {
  const t = useText()
  const [copied, setCopied] = useState(false)
  const copy = async () => {
    await copyText(text)
    setCopied(true)
    setTimeout(() => setCopied(false), SHOWN_MS)
  }
  return (
    <Tooltip title={copied ? t.common.copied : t.common.copyName(name)}>
      <Button
        size="small"
        type={label ? 'default' : 'text'}
        aria-label={t.common.copyName(name)}
        icon={copied ? <CheckOutlined /> : <CopyOutlined />}
        onClick={copy}
      >
        {label}
      </Button>
    </Tooltip>
  )
}

/** A digest or id: short on the page, whole in the clipboard and on hover. */
export function Digest({ value, name, length = 12 }: { value: string; name: string; length?: number }) {
  return (
    <span className="digest">
      <code title={value}>{value.slice(0, length)}</code>
      <CopyButton text={value} name={name} />
    </span>
  )
}

export function CodeBlock({ code, name }: { code: string; name: string }) {
  return (
    <div className="code-block">
      <CopyButton text={code} name={name} />
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it */}
      <section tabIndex={0} aria-label={name}>
        <pre>
          <code>{code}</code>
        </pre>
      </section>
    </div>
  )
}
