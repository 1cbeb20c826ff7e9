import { TagsOutlined } from '@ant-design/icons'
import { Button } from 'antd'
import { useState } from 'react'
import { useMayChange } from '@/api/session'
import type { Version } from '@/api/types'
import { useText } from '@/i18n'
import { DomainTokensDrawer } from './DomainTokensDrawer'

export function DomainTokensButton({ version }: { version: Version }) {
  const t = useText()
  const mayChange = useMayChange()
  const [open, setOpen] = useState(false)
  if (version.state !== 'ready') return null
  return (
    <>
      <Button icon={<TagsOutlined />} disabled={!mayChange} onClick={() => setOpen(true)}>
        {t.domainTokens.open}
      </Button>
      {open && <DomainTokensDrawer version={version} onClose={() => setOpen(false)} />}
    </>
  )
}
