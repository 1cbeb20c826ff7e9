import { describe, expect, it } from 'vitest'
import type { Version } from '@/api/types'
import { AUTO, chosenCount, fromChoice, toChoice, unfit } from './choice'

describe('the choice of who guesses', () => {
  it.each([
    [undefined, null],
    [undefined, 'd1'],
    ['off', null],
    ['lookahead', null],
    ['ngram+lookahead', null],
    ['lookahead+draft', 'd1'],
    ['eagle3', 'h1'],
    ['lookahead+of-a-plugin', null],
  ])('comes back as it was: %s', (option, draft) => {
    expect(fromChoice(toChoice(option, draft))).toEqual({ option, draft })
  })

  it('takes "auto" for what is not said', () => {
    expect(toChoice('auto', null)).toEqual(AUTO)
    expect(toChoice('', null)).toEqual(AUTO)
  })

  it('sends no draft where nobody computes with it', () => {
    const chosen = toChoice('lookahead+draft', 'd1')
    expect(chosenCount(chosen)).toBe(2)
    expect(fromChoice({ ...chosen, mode: 'off' })).toEqual({ option: 'off', draft: null })
    expect(fromChoice({ ...chosen, draft: null })).toEqual({ option: 'lookahead', draft: null })
    expect(fromChoice({ ...chosen, names: [], draft: null })).toEqual({ option: 'off', draft: null })
  })

  it('lets auto take a draft model by itself, and no head', () => {
    const auto = (proposer: string) =>
      fromChoice({ ...AUTO, names: ['lookahead'], draft: { version: 'd1', proposer } })
    expect(auto('draft')).toEqual({ option: undefined, draft: 'd1' })
    expect(auto('eagle3')).toEqual({ option: undefined, draft: null })
  })

  it('says why a version is no draft for another', () => {
    const of = (vocab: number, parameters: number) => ({ shape: { vocab, parameters } }) as Version
    expect(unfit(of(49_152, 135e6), of(151_936, 494e6))).toBe('vocabulary')
    expect(unfit(of(151_936, 494e6), of(151_936, 1.5e9))).toBe('not_smaller')
    expect(unfit(of(151_936, 494e6), of(151_936, 494e6))).toBe('not_smaller')
    expect(unfit(of(151_936, 1.5e9), of(151_936, 494e6))).toBe('tokenizer')
  })
})
