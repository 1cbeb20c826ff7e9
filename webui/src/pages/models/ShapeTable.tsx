import { Descriptions } from 'antd'
import type { Version } from '@/api/types'
import { useLocale, useText } from '@/i18n'
import { formatCount } from '@/ui/units'

/** The numbers that memory and speed follow from; unknown ones are left out. */
export function ShapeTable({ version }: { version: Version }) {
  const t = useText()
  const locale = useLocale()
  const { shape } = version
  const count = (value: number | undefined) => (value ? formatCount(value, locale) : '')
  const rows: [string, string][] = [
    [t.models.architecture, version.architecture],
    [t.models.parameters, count(shape.parameters)],
    [t.models.dtype, [version.dtype, version.quantization].filter(Boolean).join(' · ')],
    [t.models.license, version.license || (version.state === 'ready' ? t.models.noLicense : '')],
    [t.models.context, shape.context_length ? t.models.detail.tokens(count(shape.context_length)) : ''],
    [t.models.detail.layers, count(shape.layers)],
    [t.models.detail.hidden, count(shape.hidden)],
    [t.models.detail.heads, shape.heads ? `${shape.heads} / ${shape.kv_heads}` : ''],
    [t.models.detail.headDim, count(shape.head_dim)],
    [t.models.detail.ffn, count(shape.ffn)],
    [t.models.detail.vocab, count(shape.vocab)],
    [
      t.models.detail.slidingWindow,
      shape.sliding_window ? t.models.detail.tokens(count(shape.sliding_window)) : '',
    ],
    [
      t.models.detail.tied,
      shape.tied_embeddings === undefined
        ? ''
        : shape.tied_embeddings
          ? t.models.detail.yes
          : t.models.detail.no,
    ],
    [t.models.detail.tokenizer, tokenizerText(version.tokenizer)],
  ]
  const known = rows.filter(([, value]) => value !== '')
  if (known.length === 0) return null
  return (
    <Descriptions
      size="small"
      bordered
      column={{ xs: 1, sm: 2, lg: 3 }}
      items={known.map(([label, children]) => ({ key: label, label, children }))}
    />
  )
}

function tokenizerText(tokenizer: Record<string, unknown>): string {
  return [tokenizer.kind, tokenizer.pre].filter((part) => typeof part === 'string' && part !== '').join(' · ')
}
