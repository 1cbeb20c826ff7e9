import { Descriptions } from 'antd'
import { useLocale, useSaid } from '@/i18n'
import { useQuantizeText } from '@/i18n/quantize'
import { formatBytes, formatCount, formatSeconds } from '@/ui/units'
import { keptAs, methodText } from './kept'

/** The optimizer's report (plugins/quantization/job.py); another optimizer's may lack any of it. */
export interface Report {
  algorithm?: string
  backend?: string
  group_size?: number
  layers_by_scheme?: Record<string, number>
  calibration?: {
    texts: number
    used: number
    broken: number
    duplicates: number
    short: number
    samples: number
    tokens: number
  } | null
  notes?: string[]
  seconds?: number
  peak_memory?: number
}

/** How a version was made: by what, of which data with what left out, and what the job took. */
export function ReportFacts({ report }: { report: Report }) {
  const text = useQuantizeText()
  const said = useSaid()
  const locale = useLocale()
  const number = (value: number) => formatCount(value, locale)
  const { calibration: data, layers_by_scheme: kept } = report
  const items = [
    {
      key: 'by',
      label: text.madeBy,
      children: [
        report.algorithm && methodText(report.algorithm, text),
        report.backend && (text.backends[report.backend] ?? report.backend),
        report.group_size ? text.groups(report.group_size) : '',
      ]
        .filter(Boolean)
        .join(' · '),
    },
    {
      key: 'kept',
      label: text.keptAs,
      children: Object.entries(kept ?? {})
        .map(([scheme, count]) => `${count} × ${keptAs(scheme, text)}`)
        .join('; '),
    },
    {
      key: 'data',
      label: text.calibration,
      children: data
        ? `${text.tokensInAll(number(data.samples), number(data.tokens), number(data.samples * data.tokens))} ${text.texts(
            number(data.used),
            number(data.texts),
            number(data.broken + data.duplicates + data.short),
          )}`
        : data === null
          ? text.noData
          : '',
    },
    {
      key: 'took',
      label: text.took,
      children: [
        report.seconds && formatSeconds(report.seconds),
        report.peak_memory && text.peak(formatBytes(report.peak_memory)),
      ]
        .filter(Boolean)
        .join(', '),
    },
  ].filter(({ children }) => children !== '')
  return (
    <>
      <Descriptions size="small" bordered column={{ xs: 1, lg: 2 }} items={items} />
      {report.notes?.map((note) => (
        <p key={note} className="muted small planned-line">
          {said(note)}
        </p>
      ))}
    </>
  )
}
