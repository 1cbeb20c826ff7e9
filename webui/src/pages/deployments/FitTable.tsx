import { useCapacity } from '@/api/deployments'
import type { Capacity, EstimateInput } from '@/api/types'
import { useLocale, useSaid, useText } from '@/i18n'
import { formatBytes, formatCount } from '@/ui/units'
import { toCapacity } from './formValues'

/** Each data type on the node that was found: the longest request, and how many fit at the chosen length. */
export function FitTable({ input, node }: { input: EstimateInput; node: string | null }) {
  const t = useText()
  const text = t.deployments.capacity
  const locale = useLocale()
  const { data } = useCapacity(toCapacity(input))
  const place = data?.places.find((one) => one.node === node) ?? data?.places[0]
  const context = data?.contexts.at(-1)
  if (!place || context === undefined) return null
  const free = formatBytes(place.available)
  return (
    <table className="fit-table" data-testid="capacity">
      <caption>{text.title(place.node ?? place.device, free)}</caption>
      <thead>
        <tr>
          <th scope="col">{text.dtype}</th>
          <th scope="col">{text.longest}</th>
          <th scope="col">{text.atOnce(formatCount(context, locale))}</th>
        </tr>
      </thead>
      <tbody>
        {place.dtypes.map((row) => (
          <Row key={row.dtype} row={row} />
        ))}
      </tbody>
    </table>
  )
}

function Row({ row }: { row: Capacity['places'][number]['dtypes'][number] }) {
  const said = useSaid()
  const locale = useLocale()
  const many = row.by_context.at(-1)
  return (
    <tr>
      <th scope="row">{row.dtype}</th>
      {row.fits ? (
        <>
          <td>{formatCount(row.max_model_len, locale)}</td>
          <td>{many?.fits ? formatCount(many.max_num_seqs, locale) : said(many?.reason ?? '')}</td>
        </>
      ) : (
        <td colSpan={2} className="muted">
          {said(row.reason)}
        </td>
      )}
    </tr>
  )
}
