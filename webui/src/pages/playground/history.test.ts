import { expect, it } from 'vitest'
import { newAnswer } from './frames'
import { messagesFor, type Turn } from './history'
import { DEFAULT_PARAMETERS, toParams } from './parameters'

const answered = (model: string, text: string) => ({
  ...newAnswer('t', 'a', model),
  state: 'done' as const,
  text,
})

it('gives each model its own answers as history', () => {
  const turns: Turn[] = [
    { id: '1', prompt: 'one', answers: [answered('m', 'from m'), answered('n', 'from n')] },
    { id: '2', prompt: 'two', answers: [answered('m', '')] },
  ]
  expect(messagesFor('m', ' ', turns, 'three')).toEqual([
    { role: 'user', content: 'one' },
    { role: 'assistant', content: 'from m' },
    { role: 'user', content: 'three' },
  ])
  expect(messagesFor('new', 'Be brief.', turns, 'three')).toEqual([
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'three' },
  ])
})

it('sends only the parameters that are set', () => {
  expect(toParams(DEFAULT_PARAMETERS)).toEqual({ max_tokens: 512 })
  expect(toParams({ ...DEFAULT_PARAMETERS, temperature: 0, stop: ['.'] })).toEqual({
    max_tokens: 512,
    temperature: 0,
    stop: ['.'],
  })
})
