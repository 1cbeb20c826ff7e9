// How a layer is kept and by which method, in words: the optimizer's names are the engine's.

import type { QuantizeText } from '@/i18n/quantize'

const SCHEME =
  /^(fp|int)(\d+) (?:(per channel)|(per tensor)|group (\d+)|block (\d+) × (\d+))( asymmetric)?( act-order)?$/

/** "int4 group 64 asymmetric" → "INT4, groups of 64, with zeros"; what is not known is told as it came. */
export function keptAs(scheme: string, text: QuantizeText): string {
  if (scheme === '16 bits') return text.inBits(16)
  const found = SCHEME.exec(scheme)
  if (!found) return scheme
  const [, kind = '', bits, channel, tensor, group, rows, columns, asymmetric, order] = found
  const sharing = [
    channel && text.perChannel,
    tensor && text.perTensor,
    group && text.groups(Number(group)),
    rows && columns && text.blocks(rows, columns),
  ]
  return [`${kind.toUpperCase()}${bits}`, ...sharing, asymmetric && text.asymmetric, order && 'act-order']
    .filter(Boolean)
    .join(text.between)
}

/** "gptq, qat" → "GPTQ, trained" */
export function methodText(method: string, text: QuantizeText): string {
  return method
    .split(', ')
    .map((one) => text.methods[one] ?? one)
    .join(text.between)
}
