import { Card, Segmented } from 'antd'
import type { ColumnsType } from 'antd/es/table'
import type { RunDetail } from '@/api/evaluations'
import type { QualityTask, Sample } from '@/api/evaluationTypes'
import { samplesOf, useSamples } from '@/api/samples'
import { useSaid } from '@/i18n'
import { useEvaluationText } from '@/i18n/evaluations'
import { DataTable } from '@/ui/DataTable'
import { Loaded } from '@/ui/Page'
import { useUrlState } from '@/ui/useUrlState'
import { counted, isJudged, type Judged, judged, matches, type SampleFilter } from './flips'
import { primaryOf, scoreText } from './TaskTable'

const FILTERS: SampleFilter[] = ['all', 'flipped', 'gained', 'wrong', 'right']
const WITH_BASELINE: SampleFilter[] = ['flipped', 'gained']
const PER_PAGE = 20

/** Every sample of a task; those that turned wrong against the baseline are one click away. */
export function SampleBrowser(props: { run: RunDetail; task: QualityTask; baseline: RunDetail | undefined }) {
  const { run, task, baseline } = props
  const all = useEvaluationText()
  const text = all.quality
  const [asked, setAsked] = useUrlState('samples', 'all')
  const samples = useSamples(run, task)
  const before = useSamples(
    baseline,
    baseline?.results.quality?.quality?.tasks.find((one) => one.name === task.name),
  )
  const filter = FILTERS.find((one) => one === asked) ?? 'all'
  const kept = samplesOf(run, task)
  if (kept !== 'there') {
    return (
      <Card size="small" title={`${text.browser}: ${task.name}`}>
        <span className="muted">{text.noFile[kept]}</span>
      </Card>
    )
  }
  return (
    <Card size="small" title={`${text.browser}: ${task.name}`}>
      <Loaded query={samples}>
        {(read) => {
          const rows = judged(read, before.data ?? [])
          if (!isJudged(task.kind)) {
            return <MeasuredTable rows={rows} task={task} withBefore={before.data !== undefined} />
          }
          const shown = rows.filter((row) => matches(row, filter))
          return (
            <>
              <div className="filters">
                <div className="scroll-x">
                  <Segmented<SampleFilter>
                    aria-label={text.browser}
                    value={filter}
                    onChange={setAsked}
                    options={FILTERS.map((value) => ({
                      value,
                      label: `${text.filters[value]} (${counted(rows, value)})`,
                      disabled: WITH_BASELINE.includes(value) && !before.data,
                    }))}
                  />
                </div>
                {!before.data && <span className="muted small">{text.flipsNeedBaseline}</span>}
              </div>
              <SampleTable rows={shown} withBefore={before.data !== undefined} />
            </>
          )
        }}
      </Loaded>
    </Card>
  )
}

/** Pieces of a text, each with its own figure. */
function MeasuredTable(props: { rows: Judged[]; task: QualityTask; withBefore: boolean }) {
  const text = useEvaluationText().quality
  const said = useSaid()
  const figure = primaryOf(props.task)
  const shown = (sample: Sample | null) =>
    sample?.error ? said(sample.error) : scoreText(figure && { ...figure, value: sample?.score ?? null })
  const columns: ColumnsType<Judged> = [
    { title: text.piece, render: (_, { sample }) => <Cut text={sample.prompt} /> },
    { title: text.score, align: 'right', render: (_, { sample }) => shown(sample) },
  ]
  if (props.withBefore) {
    columns.push({ title: text.against, align: 'right', render: (_, { before }) => shown(before) })
  }
  return (
    <DataTable<Judged>
      rowKey={(row) => row.sample.id}
      size="small"
      columns={columns}
      dataSource={props.rows}
      locale={{ emptyText: text.noSample }}
      pagination={{ pageSize: PER_PAGE, hideOnSinglePage: true, showSizeChanger: false }}
    />
  )
}

function SampleTable({ rows, withBefore }: { rows: Judged[]; withBefore: boolean }) {
  const text = useEvaluationText().quality
  const said = useSaid()
  const columns: ColumnsType<Judged> = [
    { title: text.question, render: (_, { sample }) => <Cut text={sample.prompt} /> },
    { title: text.expected, render: (_, { sample }) => <Cut text={sample.expected} /> },
    {
      title: text.answer,
      render: (_, { sample, right }) => (
        <>
          <Mark right={right} />
          <Cut text={sample.answer || said(sample.error)} />
          {right === false && sample.reason && (
            <div className="muted small cell-text">{said(sample.reason)}</div>
          )}
        </>
      ),
    },
  ]
  if (withBefore) {
    columns.push({
      title: text.before,
      render: (_, { before, wasRight }) =>
        before ? (
          <>
            <Mark right={wasRight} />
            <Cut text={before.answer || before.error} />
          </>
        ) : (
          '–'
        ),
    })
  }
  return (
    <DataTable<Judged>
      rowKey={(row) => row.sample.id}
      size="small"
      columns={columns}
      dataSource={rows}
      locale={{ emptyText: text.noSample }}
      pagination={{ pageSize: PER_PAGE, hideOnSinglePage: true, showSizeChanger: false }}
    />
  )
}

function Mark({ right }: { right: boolean | null }) {
  const text = useEvaluationText().quality
  if (right === null) return <span className="muted small">{text.unjudged}</span>
  return (
    <span className={`small ${right ? 'tone-ok' : 'tone-error'}`}>
      {right ? `✓ ${text.right}` : `✗ ${text.wrong}`}
    </span>
  )
}

const CUT = 240

/** Long texts open in place. */
function Cut({ text }: { text: string }) {
  if (text.length <= CUT) return <div className="sample-text cell-text">{text || '–'}</div>
  return (
    <details className="sample-text cell-text">
      <summary>{`${text.slice(0, CUT)}…`}</summary>
      {text}
    </details>
  )
}
