import { Card, Segmented } from 'antd'
import { type ReactNode, useState } from 'react'
import type { ResultDoc } from '@/api/evaluationTypes'
import { useEvaluationText } from '@/i18n/evaluations'
import { SeriesChart } from '../charts/SeriesChart'
import { SweepChart } from '../charts/SweepChart'
import { Answer } from './Answer'
import { EnvironmentCard } from './EnvironmentCard'
import { FindingCard, ValidityAlerts } from './Findings'
import { figure, objectiveName } from './figures'
import { gathered, isGrave } from './gathered'
import { LevelTable } from './LevelTable'
import { PercentileTable } from './PercentileTable'
import { bestOf, objectivesOf, rateOf, sweepOf } from './sweep'

/** A load test's result, whole or as far as it has come: what makes it unusable first, then the answer. */
export function ResultView({ result, next }: { result: ResultDoc; next?: (code: string) => ReactNode }) {
  const text = useEvaluationText()
  const found = gathered(result)
  const grave = found.filter((one) => isGrave(one, result))
  const others = found.filter((one) => !grave.includes(one))
  const [asked, setAsked] = useState<number | null>(null)
  const chosen =
    result.levels.find((one) => one.index === asked) ?? bestOf(result.levels) ?? result.levels.at(-1) ?? null
  return (
    <div className="stack">
      <ValidityAlerts found={grave} action={next} />
      {result.levels.length > 0 && <Answer result={result} />}
      {result.levels.length > 0 && (
        <SweepCard result={result} selected={chosen?.index ?? null} onSelect={setAsked} />
      )}
      {chosen && (
        <Card
          size="small"
          title={
            chosen.concurrency
              ? text.detail.percentilesClosed(chosen.concurrency)
              : text.detail.percentilesTitle(figure(rateOf(chosen)))
          }
        >
          <SeriesChart series={chosen.series} />
          <PercentileTable level={chosen} definitions={result.definitions} />
        </Card>
      )}
      {result.state !== 'running' || others.length > 0 ? (
        <FindingCard found={others} any={found.length > 0} action={next} />
      ) : null}
      <EnvironmentCard result={result} />
    </div>
  )
}

function SweepCard(props: { result: ResultDoc; selected: number | null; onSelect: (index: number) => void }) {
  const { result, selected, onSelect } = props
  const text = useEvaluationText()
  const objectives = objectivesOf(result)
  const [at, setAt] = useState(0)
  const sweep = sweepOf(result, objectives[at] ?? objectives[0])
  return (
    <Card
      size="small"
      title={text.detail.sweepTitle}
      extra={
        objectives.length > 1 && (
          <div className="scroll-x">
            <Segmented<number>
              size="small"
              aria-label={text.detail.objective}
              value={at}
              onChange={setAt}
              options={objectives.map((one, value) => ({ value, label: objectiveName(one) }))}
            />
          </div>
        )
      }
    >
      <div className="stack">
        <SweepChart
          sweep={sweep}
          label={text.sweep.label(sweep.metricName, sweep.levels.length)}
          selected={selected}
          onSelect={onSelect}
        />
        <LevelTable result={result} selected={selected} onSelect={onSelect} />
      </div>
    </Card>
  )
}
