// The platform speaks English: reasons, errors and events are sentences with figures in them. Their English is their
// name, as with gettext, and a language has a catalogue from each to its own (zh/sentences.json). A sentence without
// an entry is shown as it came. tests/platform/console/test_sentences.py holds the catalogue to the platform's source.
//
// Places in a template:  {name} any text · {#n} a number · {state} a state's word
// {~text} sentences, translated where they can be · {>text} the same, but they must be · {*list} a list, each part so

import type { Dictionary } from './en'

type Place = { name: string; kind: string }
interface Template {
  pattern: RegExp
  places: Place[]
  translated: string
}

const PLACE = /\{([#~>*]?)(\w+)\}/g
const REMEMBERED = 500

/** Words of one language for the platform's sentences. */
export function translator(
  catalogue: Record<string, string>,
  states: Dictionary['states'],
): (text: string) => string {
  // The longest first: it says more of what the sentence is than one with a place for nearly everything.
  const templates = Object.entries(catalogue)
    .sort(([a], [b]) => b.replace(PLACE, '').length - a.replace(PLACE, '').length)
    .map(([english, translated]) => compile(english, translated))
  const known = new Map<string, string>()

  function translate(text: string): string {
    const before = known.get(text)
    if (before !== undefined) return before
    const found = sentences(text)
    if (known.size >= REMEMBERED) known.clear()
    known.set(text, found)
    return found
  }

  function sentences(text: string): string {
    const parts = text.split(/(?<=[.!?]) +/)
    const said = parts.map((part) => [part, whole(part)] as const)
    return said.map(([part, own], at) => (own ?? part) + (own || at === said.length - 1 ? '' : ' ')).join('')
  }

  /** The translation of all of `text` by one template; undefined where none fits. */
  function whole(text: string): string | undefined {
    for (const template of templates) {
      const match = template.pattern.exec(text)
      const filled = match && fill(template, match)
      if (filled) return filled
    }
    return undefined
  }

  function fill({ places, translated }: Template, match: RegExpExecArray): string | undefined {
    const values = new Map<string, string>()
    for (const [at, { name, kind }] of places.entries()) {
      const value = valueIn(kind, name, match[at + 1] ?? '')
      if (value === undefined) return undefined
      values.set(name, value)
    }
    return translated.replace(/\{(\w+)\}/g, (_, name: string) => values.get(name) ?? '')
  }

  function valueIn(kind: string, name: string, value: string): string | undefined {
    if (kind === '~') return translate(value)
    if (kind === '>') return translate(value) === value ? undefined : translate(value)
    if (kind === '*') return value.split(/[,;] /).map(translate).join('，')
    if (name === 'state') return states[value as keyof Dictionary['states']] ?? value
    return value
  }

  return translate
}

/** Capitals and the last full stop do not count: an engine's "loading the model" is shown as a sentence too. */
function compile(english: string, translated: string): Template {
  const places: Place[] = []
  const text = english.replace(/\.$/, '')
  let pattern = ''
  let after = 0
  for (const match of text.matchAll(PLACE)) {
    const [, kind = '', name = ''] = match
    places.push({ name, kind })
    pattern += literal(text.slice(after, match.index)) + (kind === '#' ? '([\\d.,]*\\d)' : '(.+?)')
    after = match.index + match[0].length
  }
  return { pattern: new RegExp(`^${pattern}${literal(text.slice(after))}\\.?$`, 'is'), places, translated }
}

function literal(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
}
