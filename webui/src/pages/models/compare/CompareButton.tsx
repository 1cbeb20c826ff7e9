import { DiffOutlined } from '@ant-design/icons'
import { Button } from 'antd'
import { useState } from 'react'
import { useMayChange } from '@/api/session'
import type { Version } from '@/api/types'
import { useDiagnosisText } from '@/i18n/diagnosis'
import { CompareDrawer } from './CompareDrawer'

export function CompareButton({ version }: { version: Version }) {
  const t = useDiagnosisText()
  const mayChange = useMayChange()
  const [open, setOpen] = useState(false)
  if (version.state !== 'ready') return null
  return (
    <>
      <Button icon={<DiffOutlined />} disabled={!mayChange} onClick={() => setOpen(true)}>
        {t.compare.open}
      </Button>
      {open && <CompareDrawer version={version} onClose={() => setOpen(false)} />}
    </>
  )
}
