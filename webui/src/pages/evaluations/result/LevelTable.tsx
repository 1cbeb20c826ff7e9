import { Button, Tooltip } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import { useState } from 'react'
import type { LevelResult, ResultDoc } from '@/api/evaluationTypes'
import { useLocale } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { DataTable } from '@/ui/DataTable'
import { formatSeconds } from '@/ui/units'
import { LevelMark } from '../charts/LevelMark'
import { DecisionTag } from './DecisionTag'
import { failuresOf, figure, METRIC_NAMES, quantileName, share } from './figures'
import { rateOf } from './sweep'

const PER_PAGE = 12

interface Props {
  result: ResultDoc
  selected: number | null
  onSelect: (index: number) => void
}

/** A row for each level in the order of rates; the chosen one's percentiles stand below. */
export function LevelTable({ result, selected, onSelect }: Props) {
  const all = useEvaluationText()
  const text = all.levels
  const rows = [...result.levels].sort((a, b) => (rateOf(a) ?? 0) - (rateOf(b) ?? 0) || a.index - b.index)
  // The page of the chosen level, until the reader turns it: a level chosen on the chart is in sight.
  const [turned, setTurned] = useState<{ page: number; at: number | null }>()
  const place = rows.findIndex((level) => level.index === selected)
  const page = turned?.at === selected ? turned.page : Math.floor(Math.max(0, place) / PER_PAGE) + 1
  const columns: ColumnsType<LevelResult> = [
    {
      title: <Tooltip title={text.rateHint}>{text.rate}</Tooltip>,
      align: 'right',
      render: (_, level) => (
        <Button
          type={level.index === selected ? 'primary' : 'link'}
          size="small"
          aria-pressed={level.index === selected}
          aria-label={`${text.show}: ${figure(rateOf(level))}`}
          onClick={() => onSelect(level.index)}
        >
          {level.concurrency ? `×${level.concurrency}` : figure(rateOf(level))}
        </Button>
      ),
    },
    { title: text.verdict, render: (_, level) => <LevelVerdict level={level} /> },
    { title: text.decision, render: (_, level) => <Decisions level={level} /> },
    { title: text.done, align: 'right', render: (_, level) => figure(level.done_rate) },
    {
      title: <Tooltip title={text.goodputHint}>{text.goodput}</Tooltip>,
      align: 'right',
      render: (_, level) => figure(level.goodput),
    },
    {
      title: <Tooltip title={text.attainmentHint}>{text.attainment}</Tooltip>,
      align: 'right',
      render: (_, level) => share(level.attainment),
    },
    { title: text.requests, align: 'right', render: (_, level) => level.counts.offered },
    {
      title: <Tooltip title={text.failedHint}>{text.failed}</Tooltip>,
      align: 'right',
      render: (_, level) => {
        const failed = failuresOf(level)
        return <span className={failed > 0 ? 'tone-error' : undefined}>{failed}</span>
      },
    },
    {
      title: text.window,
      align: 'right',
      render: (_, level) => (level.window ? formatSeconds(level.window.seconds) : '–'),
    },
  ]
  return (
    <DataTable<LevelResult>
      rowKey="index"
      size="small"
      columns={columns}
      dataSource={rows}
      rowClassName={(level) => (level.index === selected ? 'row-chosen' : '')}
      pagination={{
        current: page,
        onChange: (next) => setTurned({ page: next, at: selected }),
        pageSize: PER_PAGE,
        hideOnSinglePage: true,
        showSizeChanger: false,
      }}
    />
  )
}

function LevelVerdict({ level }: { level: LevelResult }) {
  const all = useEvaluationText()
  const why = new Intl.ListFormat(useLocale(), { type: 'unit' }).format(
    level.reasons.map((code) => all.levels.reasons[code] ?? code),
  )
  return (
    <span className="level-verdict">
      <svg width="14" height="14" aria-hidden="true">
        <LevelMark x={7} y={7} verdict={level.verdict} />
      </svg>
      <span>
        {all.levelVerdicts[level.verdict]}
        {why && <div className="muted small cell-text">{why}</div>}
      </span>
    </span>
  )
}

function Decisions({ level }: { level: LevelResult }) {
  const text = useEvaluationText().levels
  if (level.objectives.length === 0) return '–'
  return (
    <div className="decisions">
      {level.objectives.map((one) => (
        <Tooltip
          key={`${one.metric} ${one.quantile} ${one.start}`}
          title={`${text.misses}: ${one.k} / ${one.n} (${share(one.lower, 2)} … ${share(one.upper, 2)}). ${text.missesHint}`}
        >
          <span>
            <DecisionTag
              verdict={one.decision}
              label={`${quantileName(one.quantile)} ${METRIC_NAMES[one.metric]}`}
            />
          </span>
        </Tooltip>
      ))}
    </div>
  )
}
