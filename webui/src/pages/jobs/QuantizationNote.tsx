import { Card } from 'antd'
import { Link } from 'react-router'
import { useQuantizationOf } from '@/api/quantization'
import { useQuantizeText } from '@/i18n/quantize'
import { VerdictCell } from '@/pages/quantize/VerdictCell'
import { ErrorNotice } from '@/ui/ErrorNotice'

/** The verdict on what a job made, and the way to the table that it stands in. */
export function QuantizationNote({ job }: { job: string }) {
  const text = useQuantizeText()
  const { data, error } = useQuantizationOf(job)
  if (!data) return <ErrorNotice error={error} />
  return (
    <Card title={text.verdict} size="small">
      <VerdictCell one={data} />
      <Link to={`/quantize/${data.base}`}>{text.toTable}</Link>
    </Card>
  )
}
