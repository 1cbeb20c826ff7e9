import { PlusOutlined } from '@ant-design/icons'
import { Button } from 'antd'
import { useMayChange } from '@/api/session'
import { useEvaluationText } from '@/i18n/evaluations'
import { useUrlState } from '@/ui/useUrlState'

/** Opens the drawer, whose state is in the address. */
export function QualityStart() {
  const text = useEvaluationText().quality
  const mayChange = useMayChange()
  const [, setAsked] = useUrlState('new')
  return (
    <Button type="primary" icon={<PlusOutlined />} disabled={!mayChange} onClick={() => setAsked('quality')}>
      {text.start}
    </Button>
  )
}
