import { TagsOutlined } from '@ant-design/icons'
import { Button } from 'antd'
import { useState } from 'react'
import { useMayChange } from '@/api/session'
import type { Version } from '@/api/types'
import { useDomainTokensText } from '@/i18n/domainTokens'
import { DomainTokensDrawer } from './DomainTokensDrawer'

export function DomainTokensButton({ version }: { version: Version }) {
  const text = useDomainTokensText()
  const mayChange = useMayChange()
  const [open, setOpen] = useState(false)
  if (version.state !== 'ready') return null
  return (
    <>
      <Button icon={<TagsOutlined />} disabled={!mayChange} onClick={() => setOpen(true)}>
        {text.open}
      </Button>
      {open && <DomainTokensDrawer version={version} onClose={() => setOpen(false)} />}
    </>
  )
}
