import { Button } from 'antd'
import { Link } from 'react-router'
import { useCompare } from '@/api/diagnosis'
import { useJob } from '@/api/operations'
import { type QuantizationDetail, refresh } from '@/api/quantization'
import { useMayChange } from '@/api/session'
import type { Comparison } from '@/api/types'
import { useQuantizeText } from '@/i18n/quantize'
import { LayerChart } from '@/pages/jobs/LayerChart'
import { JobProgress } from '@/ui/JobProgress'
import { Loaded } from '@/ui/Page'
import { StatusLine } from '@/ui/Status'
import { useAct } from '@/ui/useAct'
import { byLayer } from './layers'

/**
 * Local and accumulated error of each layer: of a comparison with the base on one text where a job made one, else what
 * was measured of each layer alone while it was quantized.
 */
export function LayerErrors({ one }: { one: QuantizationDetail }) {
  const text = useQuantizeText()
  if (one.comparison) return <Compared one={one} job={one.comparison} />
  return (
    <div>
      <LayerChart layers={byLayer(one.layers)} label={text.chart} />
      <Compare one={one} />
    </div>
  )
}

function Compared({ one, job: id }: { one: QuantizationDetail; job: string }) {
  const text = useQuantizeText()
  const job = useJob(id)
  return (
    <Loaded query={job} rows={3}>
      {(data) =>
        data.state === 'succeeded' ? (
          <div>
            <LayerChart layers={(data.report as unknown as Comparison).layers} label={text.chart} />
            <Link to={`/jobs/${data.id}`}>{text.comparison}</Link>
          </div>
        ) : (
          <div>
            <LayerChart layers={byLayer(one.layers)} label={text.chart} />
            <StatusLine state={data.state} reason={data.reason} />
            <JobProgress job={data} />
            {data.state !== 'running' && data.state !== 'queued' && <Compare one={one} />}
          </div>
        )
      }
    </Loaded>
  )
}

function Compare({ one }: { one: QuantizationDetail }) {
  const text = useQuantizeText()
  const act = useAct()
  const mayChange = useMayChange()
  const compare = useCompare(one.version ?? '')
  if (one.version === null) return null
  return (
    <p className="muted planned-line">
      <Button
        size="small"
        disabled={!mayChange || one.version_state !== 'ready'}
        loading={compare.isPending}
        onClick={() => compare.mutate({ reference: one.base }, { onSuccess: refresh, onError: act.failed })}
      >
        {text.compareLayers}
      </Button>{' '}
      {text.compareHint}
    </p>
  )
}
