import { CompressOutlined } from '@ant-design/icons'
import { Button } from 'antd'
import { Link } from 'react-router'
import { useMayChange } from '@/api/session'
import type { Version } from '@/api/types'
import { useQuantizeText } from '@/i18n/quantize'

/** To the page that makes smaller versions of this one. */
export function QuantizeButton({ version }: { version: Version }) {
  const text = useQuantizeText()
  const mayChange = useMayChange()
  if (version.state !== 'ready') return null
  return (
    <Link to={`/quantize?version=${version.id}`}>
      <Button icon={<CompressOutlined />} disabled={!mayChange}>
        {text.open}
      </Button>
    </Link>
  )
}
