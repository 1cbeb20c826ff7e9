import { CompressOutlined } from '@ant-design/icons'
import { Button, Card } from 'antd'
import { Link, useParams } from 'react-router'
import { useVersion } from '@/api/models'
import { type QuantizationTable, useQuantizations } from '@/api/quantization'
import { useMayChange } from '@/api/session'
import { useQuantizeText } from '@/i18n/quantize'
import { EmptyState } from '@/ui/EmptyState'
import { Loaded, Page } from '@/ui/Page'
import { useUrlState } from '@/ui/useUrlState'
import { CompareTable } from './CompareTable'
import { LayerReport } from './LayerReport'
import { RunningJob } from './RunningJob'
import './quantize.css'
import '../evaluations/evaluations.css'

/** A base and all that was made of it: what runs, side by side; the comparison; and the layers of one. */
export function ResultsPage() {
  const text = useQuantizeText()
  const { id = '' } = useParams()
  const table = useQuantizations(id)
  const version = useVersion(id)
  return (
    <Page
      title={text.of(table.data?.base.label ?? '')}
      parent={version.data && { title: version.data.model_name, to: `/models/${version.data.model}` }}
      lead={text.ofLead}
      actions={<Again version={id} />}
    >
      <Loaded query={table}>{(data) => <Results key={id} table={data} />}</Loaded>
    </Page>
  )
}

function Again({ version }: { version: string }) {
  const text = useQuantizeText()
  const mayChange = useMayChange()
  return (
    <Link to={`/quantize?version=${version}`}>
      <Button type="primary" icon={<CompressOutlined />} disabled={!mayChange}>
        {text.again}
      </Button>
    </Link>
  )
}

function Results({ table }: { table: QuantizationTable }) {
  const text = useQuantizeText()
  const [asked, setAsked] = useUrlState('report')
  const running = table.rows.filter(({ job }) => ['queued', 'running', 'cancelling'].includes(job.state))
  if (table.rows.length === 0) {
    return (
      <EmptyState
        icon={<CompressOutlined />}
        title={text.emptyTitle}
        text={text.emptyText}
        action={<Again version={table.base.version} />}
      />
    )
  }
  return (
    <div className="stack">
      {running.length > 0 && (
        <section aria-label={text.jobs} className="running-jobs">
          {running.map((one) => (
            <RunningJob key={one.id} one={one} />
          ))}
        </section>
      )}
      <Card title={text.table} size="small">
        <CompareTable table={table} chosen={asked} onChoose={setAsked} />
      </Card>
      {asked !== '' && <LayerReport key={asked} id={asked} onClose={() => setAsked('')} />}
    </div>
  )
}
