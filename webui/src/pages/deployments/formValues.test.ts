import { describe, expect, it } from 'vitest'
import {
  changedFields,
  NEW_VALUES,
  restartingFields,
  splitOptions,
  toCapacity,
  toEstimate,
  toInput,
} from './formValues'

const values = { ...NEW_VALUES, name: 'demo', version: 'v1', kv_cache_mib: 64 }

describe('deployment form', () => {
  it('sends bytes and a replica count per role', () => {
    const input = toInput({ ...values, options: { strict: true, note: '', seed: undefined } })
    expect(input.kv_cache_bytes).toBe(67_108_864)
    expect(input.replicas).toEqual({ unified: 1 })
    expect(input.options).toEqual({ strict: true })
    expect(input).not.toHaveProperty('kv_cache_mib')
  })

  it('asks for no estimate before a version is chosen, and without the name', () => {
    expect(toEstimate(NEW_VALUES)).toBeNull()
    expect(toEstimate(values)).not.toHaveProperty('name')
  })

  it('asks what fits at the length of the form, else at those of the model', () => {
    const input = toEstimate({ ...values, dtype: 'int8', max_model_len: 4096, device: 'cuda' })
    expect(input && toCapacity(input)).toMatchObject({ device: 'cuda', contexts: [4096], concurrencies: [1] })
    expect(input && toCapacity(input)).not.toHaveProperty('dtype')
    const open = toEstimate(values)
    expect(open && toCapacity(open)).not.toHaveProperty('contexts')
  })

  it("sends an admin's reason to go past a gate where there is one, and asks for no estimate with it", () => {
    const insisting = { ...values, override: 'needed for a demo' }
    expect(toInput(insisting).override).toBe('needed for a demo')
    expect(toInput({ ...values, override: '' })).not.toHaveProperty('override')
    expect(toEstimate(insisting)).not.toHaveProperty('override')
    expect(changedFields(values, insisting)).toEqual(['override'])
    expect(restartingFields(['override'])).toEqual([])
  })

  it('keeps who guesses, and the draft, in one field', () => {
    const held = splitOptions({ strict: true, speculation: 'lookahead+draft' }, 'd1')
    const input = toInput({ ...values, ...held })
    expect(input.options).toEqual({ strict: true, speculation: 'lookahead+draft' })
    expect(input.draft_version).toBe('d1')
    expect(toInput(values)).toMatchObject({ options: {}, draft_version: null })
    const changed = changedFields({ ...values, ...held }, values)
    expect(new Set(restartingFields(changed))).toEqual(new Set(['options', 'draft_version']))
  })

  it('knows which changes restart instances', () => {
    const changed = changedFields(values, { ...values, replicas: 3, dtype: 'float32', description: 'x' })
    expect(new Set(changed)).toEqual(new Set(['description', 'dtype', 'replicas']))
    expect(restartingFields(changed)).toEqual(['dtype'])
  })
})
