import { ForkOutlined } from '@ant-design/icons'
import { Button } from 'antd'
import { lazy, Suspense, useState } from 'react'
import type { Version } from '@/api/types'
import { useSpeculationText } from '@/i18n/speculation'

const DraftsDrawer = lazy(async () => ({ default: (await import('./DraftsDrawer')).DraftsDrawer }))

/** Opens what writes ahead for this version, and for which others it does. */
export function DraftsButton({ version }: { version: Version }) {
  const text = useSpeculationText().drafts
  const [open, setOpen] = useState(false)
  if (version.state !== 'ready') return null
  return (
    <>
      <Button icon={<ForkOutlined />} onClick={() => setOpen(true)}>
        {text.open}
      </Button>
      {open && (
        <Suspense>
          <DraftsDrawer version={version} onClose={() => setOpen(false)} />
        </Suspense>
      )}
    </>
  )
}
