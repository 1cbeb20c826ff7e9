import { describe, expect, it } from 'vitest'
import type { DoneLayer, Quantization, Scheme } from '@/api/quantization'
import type { Job } from '@/api/types'
import { quantize as en } from '@/i18n/en/quantize'
import { quantize as zh } from '@/i18n/zh/quantize'
import { beforeOf, changeLine, changeText, changeTone, rangeText, toneOf } from './deltas'
import { keptAs, methodText } from './kept'
import { byLayer } from './layers'
import { deployPath, outcomeOf, roughly } from './outcome'
import { choiceOf, deviceOf, inputOf, NEW_FORM, type QuantizeForm } from './quantizeForm'
import { winsOf } from './wins'

const scheme = (name: string, needs_data = false): Scheme => ({
  name,
  label: name,
  explanation: '',
  best_for: '',
  optimizer: 'quantization',
  weights: '',
  activations: '',
  kv: '',
  embedding: '',
  needs_data,
  bits: 8,
  options_schema: { properties: { damping: { type: 'number' }, keep: { type: 'array' } } },
  gate: { perplexity_ratio: 1.03 },
  support: [
    { device: 'cpu', device_name: 'CPU', level: 'slow', reason: '' },
    { device: 'h200', device_name: 'NVIDIA H200', level: 'supported', reason: '' },
  ],
})
const schemes = [scheme('fp8_dynamic'), scheme('w4a16_gptq', true)]
const form: QuantizeForm = { ...NEW_FORM, version: 'v', device: 'cpu', schemes: ['w4a16_gptq'] }

describe('what the form asks of the platform', () => {
  it('asks nothing while something that is needed is empty', () => {
    expect(inputOf({ ...form, version: undefined }, schemes)).toBeNull()
    expect(inputOf({ ...form, schemes: [] }, schemes)).toBeNull()
    expect(inputOf({ ...form, samples: 0 }, schemes)).toBeNull()
    expect(inputOf({ ...form, source: 'corpus' }, schemes)).toBeNull()
  })

  it('asks for no corpus where no scheme reads one', () => {
    const input = inputOf({ ...form, source: 'corpus', schemes: ['fp8_dynamic'] }, schemes)
    expect(input?.calibration).toEqual({ source: 'builtin', samples: 128, tokens: 512 })
  })

  it('sends a corpus only with its source', () => {
    expect(inputOf({ ...form, corpus: 'c' }, schemes)?.calibration.corpus).toBeUndefined()
    expect(inputOf({ ...form, source: 'corpus', corpus: 'c' }, schemes)?.calibration).toEqual({
      source: 'corpus',
      corpus: 'c',
      samples: 128,
      tokens: 512,
    })
  })

  it('leaves out what is empty or unknown, and keeps layers apart', () => {
    const [, gptq] = schemes
    if (!gptq) throw new Error('no scheme')
    const options = { w4a16_gptq: { damping: null, keep: ['layers.0'], alpha: 0.5 } }
    const gates = { w4a16_gptq: { kl: 0.02, perplexity_ratio: null } }
    expect(choiceOf(gptq, { ...form, options, gates })).toEqual({
      scheme: 'w4a16_gptq',
      options: {},
      gate: { perplexity_ratio: 1.03, kl: 0.02 },
      keep: ['layers.0'],
    })
  })

  it('takes the GPU that a node has, else the processor', () => {
    expect(deviceOf(schemes, [{ gpus: [] }])).toBe('cpu')
    const gpu = { index: 0, name: 'NVIDIA H200', uuid: '', memory_total: 1, memory_used: 0, utilization: 0 }
    expect(deviceOf(schemes, [{ gpus: [gpu] }])).toBe('h200')
    expect(deviceOf([], [])).toBe('cpu')
  })
})

describe('differences against the base', () => {
  it.each([
    [100, 27, '−73 %'],
    [100, 112, '+12 %'],
    [100, 100.3, '+0.3 %'],
    [100, 99.99, '±0 %'],
    [50, 121, '2.42 ×'],
    [0, 5, ''],
    [null, 5, ''],
    [5, null, ''],
  ])('%s → %s is %s', (before, after, told) => {
    expect(changeText(before, after)).toBe(told)
  })

  it('knows which side is good, and what is noise', () => {
    expect(toneOf(100, 50, 'lower')).toBe('tone-ok')
    expect(toneOf(100, 50, 'higher')).toBe('tone-error')
    expect(toneOf(100, 100.4, 'lower')).toBeUndefined()
    expect(toneOf(null, 50, 'lower')).toBeUndefined()
  })

  it('tells a base that several jobs measured as from the least to the most', () => {
    expect(rangeText([13.51, null, 10.12, undefined], (value) => value.toFixed(1))).toBe('10.1 – 13.5')
    expect(rangeText([13.51, 13.49], (value) => value.toFixed(1))).toBe('13.5')
    expect(rangeText([null, undefined], String)).toBe('–')
  })

  it('takes the fastest that the base was on that machine: what slows a job down is not the base', () => {
    const on = (node_name: string, decode: number, memory: number) => ({
      job: { node_name },
      base_figures: { decode_tokens_per_s: decode, memory_bytes: memory, measured_on: 'cpu' },
    })
    const rows = [on('a', 13.5, 500), on('a', 6.3, 510), on('b', 90, 500)] as Quantization[]
    const [, second] = rows
    if (!second) throw new Error('no row')
    expect(beforeOf(second, rows, 'decode_tokens_per_s', 'higher')).toBe(13.5)
    expect(beforeOf(second, rows, 'memory_bytes', 'lower')).toBe(510)
    expect(beforeOf({ ...second, base_figures: null }, rows, 'memory_bytes', 'lower')).toBeNull()
  })

  it('tells an edge of the lineage', () => {
    expect(changeLine('size', { before: 2 ** 30, after: 2 ** 29, unit: 'bytes' }, en, String)).toBe(
      'Size 1.00 GiB → 512 MiB (−50 %)',
    )
    expect(changeLine('same top', { before: 1, after: 0.953, unit: '' }, en, String)).toBe('Top-1 95.3 %')
    expect(changeLine('KL', { before: 0, after: 0.0123, unit: 'nats per token' }, en, String)).toBe(
      'KL divergence 0.0123 nats per token',
    )
    expect(changeLine('verdict', { before: 'base', after: 'failed', unit: '' }, zh, String)).toBe(
      '结论: 未过门禁',
    )
    const chinese = (words: string) => (words === 'INT4 W4A16, AWQ' ? 'INT4 W4A16（AWQ）' : words)
    expect(changeLine('scheme', { before: 'Q4_1', after: 'INT4 W4A16, AWQ', unit: '' }, zh, chinese)).toBe(
      '方案: INT4 W4A16（AWQ）',
    )
    expect(changeTone('verdict', { before: 'base', after: 'failed', unit: '' })).toBe('tone-warning')
  })
})

describe('how a job ended', () => {
  const job = (state: Job['state']) => ({ state }) as Job
  it.each([
    ['succeeded', 'passed', 'passed'],
    ['rejected', 'failed', 'failed'],
    ['rejected', 'error', 'undecided'],
    ['succeeded', null, 'undecided'],
    ['errored', null, 'errored'],
    ['cancelled', null, 'cancelled'],
    ['cancelling', null, 'running'],
    ['queued', null, 'queued'],
  ] as const)('%s with verdict %s is %s', (state, verdict, told) => {
    expect(outcomeOf({ job: job(state), verdict })).toBe(told)
  })
})

describe('what speaks for a version', () => {
  const made = (id: string, verdict: string, decode: number | null, memory: number, kl: number) =>
    ({
      id,
      verdict,
      job: { state: verdict === 'passed' ? 'succeeded' : 'rejected' },
      figures: { decode_tokens_per_s: decode, memory_bytes: memory, kl },
    }) as unknown as Quantization

  it('is told of those that passed, once there are two', () => {
    const rows = [
      made('a', 'passed', 30, 200, 0.02),
      made('b', 'passed', 20, 100, 0.03),
      made('c', 'failed', 90, 50, 0.01),
    ]
    expect([...winsOf(rows)]).toEqual([
      ['a', ['fastest', 'closest']],
      ['b', ['smallest']],
    ])
    expect(winsOf(rows.slice(1)).size).toBe(0)
  })

  it('is not told where it was not measured or several are alike', () => {
    const rows = [made('a', 'passed', null, 100, 0.02), made('b', 'passed', 20, 100, 0.02)]
    expect(winsOf(rows).size).toBe(0)
  })
})

describe('time that is left', () => {
  it.each([
    [0.4, '10 s'],
    [56, '1 min'],
    [110, '1 min 50 s'],
    [1250, '21 min'],
    [5400, '1 h 30 min'],
  ])('%s is about %s', (seconds, told) => expect(roughly(seconds)).toBe(told))
})

describe('how a layer is kept', () => {
  it.each([
    ['int4 group 64 asymmetric', 'INT4, groups of 64, with zeros', 'INT4，每组 64，带零点'],
    ['fp8 per channel', 'FP8, per channel', 'FP8，按通道'],
    ['fp8 block 128 × 128', 'FP8, blocks of 128 × 128', 'FP8，128 × 128 分块'],
    ['16 bits', '16 bits', '16 位'],
    ['ternary', 'ternary', 'ternary'],
  ])('%s is %s', (scheme, english, chinese) => {
    expect(keptAs(scheme, en)).toBe(english)
    expect(keptAs(scheme, zh)).toBe(chinese)
  })

  it('by which method, and what came after it', () => {
    expect(methodText('gptq, qat', en)).toBe('GPTQ, trained')
    expect(methodText('smoothquant_gptq', zh)).toBe('SmoothQuant，再 GPTQ')
    expect(methodText('spqr', en)).toBe('spqr')
  })
})

describe('the chart of layers', () => {
  const product = (index: number, local_error: number | null, accumulated_error: number | null) =>
    ({ index, name: `layers.${index}.qkv`, local_error, accumulated_error }) as DoneLayer

  it('has a point for each layer: its worst product, and the stream after its last', () => {
    const found = byLayer([
      product(1, 0.5, 0.7),
      product(0, 0.1, null),
      product(0, 0.3, 0.4),
      product(0, null, null),
    ])
    expect(found.map((one) => [one.layer, one.own_error, one.relative_error])).toEqual([
      [0, 0.3, 0.4],
      [1, 0.5, 0.7],
    ])
  })
})

describe('the way to a deployment', () => {
  it('asks for the KV cache that the version was made for', () => {
    const one = {
      version: 'v',
      version_label: 'SmolLM2 v3',
      scheme: 'kv_int8',
      deploy: { options: { kv_cache_dtype: 'int8' } },
    } as unknown as Quantization
    expect(deployPath(one)).toBe('/deployments/new?version=v&name=smollm2-kv-int8&option.kv_cache_dtype=int8')
    expect(deployPath({ ...one, scheme: 'int8_w8a8', deploy: undefined })).toBe(
      '/deployments/new?version=v&name=smollm2-int8-w8a8',
    )
  })
})
