import { Alert, Button, Card, Collapse, Descriptions, Tooltip } from 'antd'
import { type Key, useState } from 'react'
import { useNavigate } from 'react-router'
import { type DomainTokensReport as Report, type TermRow, useAddDomainTokens } from '@/api/domainTokens'
import { useMayChange } from '@/api/session'
import type { Job } from '@/api/types'
import { useLocale } from '@/i18n'
import { useDomainTokensText } from '@/i18n/domainTokens'
import { DataTable } from '@/ui/DataTable'
import { formatCount } from '@/ui/units'
import { useAct } from '@/ui/useAct'
import { TermTable } from './TermTable'
import { TokenExamples } from './TokenExamples'

/** What domain tokens save; of a preview, with the way to the version that has them. */
export function DomainTokensReport({ job }: { job: Job }) {
  const text = useDomainTokensText()
  const found = job.report as unknown as Report
  const [chosen, setChosen] = useState<Key[]>(found.terms.map((row) => row.term))
  return (
    <Card title={text.report} size="small">
      <div className="stack" data-testid="domain-tokens">
        {found.preview && <Next found={found} chosen={chosen.map(String)} />}
        <Figures found={found} />
        {found.saving && <TokenExamples examples={found.saving.examples} />}
        <TermTable found={found} chosen={chosen} onChosen={found.preview ? setChosen : undefined} />
        <Skipped found={found} />
      </div>
    </Card>
  )
}

function Next({ found, chosen }: { found: Report; chosen: string[] }) {
  const text = useDomainTokensText()
  const mayChange = useMayChange()
  const navigate = useNavigate()
  const act = useAct()
  const add = useAddDomainTokens(found.base.version)
  const make = () =>
    add.mutate(
      { terms: chosen, corpus: found.corpus || null, dtype: found.dtype ?? 'auto', skip_unneeded: true },
      { onSuccess: (job) => navigate(`/jobs/${job.id}`), onError: act.failed },
    )
  return (
    <Alert
      type="info"
      showIcon
      title={text.previewNote}
      action={
        <Button
          type="primary"
          disabled={!mayChange || chosen.length === 0}
          loading={add.isPending}
          onClick={make}
        >
          {text.makeThese(chosen.length)}
        </Button>
      }
    />
  )
}

function Figures({ found }: { found: Report }) {
  const text = useDomainTokensText()
  const locale = useLocale()
  const number = (value: number) => formatCount(value, locale)
  const { saving, vocabulary } = found
  const items = []
  if (saving) {
    const share = (100 * (1 - saving.after / Math.max(saving.before, 1))).toFixed(1)
    const lines = saving.inexact_lines
    items.push(
      {
        key: 'corpus',
        label: <Tooltip title={text.onCorpusHint}>{text.onCorpus}</Tooltip>,
        children: (
          <>
            {`${number(saving.before)} → ${number(saving.after)} `}
            <strong>{text.less(share)}</strong>
          </>
        ),
      },
      {
        key: 'exact',
        label: <Tooltip title={text.exactHint}>{text.exact}</Tooltip>,
        children: lines === 0 ? text.allLines(number(saving.lines)) : text.inexact(number(lines)),
      },
    )
  }
  items.push({
    key: 'vocabulary',
    label: <Tooltip title={text.vocabularyHint}>{text.vocabulary}</Tooltip>,
    children: `${number(vocabulary.before)} → ${number(vocabulary.after)} (${text.rows(number(vocabulary.rows))})`,
  })
  return <Descriptions size="small" bordered column={{ xs: 1, lg: items.length }} items={items} />
}

function Skipped({ found }: { found: Report }) {
  const text = useDomainTokensText()
  if (found.skipped_total === 0) return null
  return (
    <Collapse
      size="small"
      items={[
        {
          key: 'skipped',
          label: text.skipped(found.skipped_total),
          children: (
            <DataTable<Report['skipped'][number]>
              size="small"
              rowKey={(row) => `${row.term}\n${row.code}`}
              dataSource={found.skipped}
              pagination={{ pageSize: 50, hideOnSinglePage: true }}
              columns={[
                { title: text.term, render: (_, row) => <TermText row={row} /> },
                { title: text.why, render: (_, row) => text.reasons[row.code] ?? row.reason },
              ]}
            />
          ),
        },
      ]}
    />
  )
}

function TermText({ row }: { row: Pick<TermRow, 'term'> }) {
  return row.term.trim() === '' ? '–' : row.term
}
