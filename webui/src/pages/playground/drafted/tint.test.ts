import { createElement } from 'react'
import { renderToStaticMarkup } from 'react-dom/server'
import ReactMarkdown from 'react-markdown'
import remarkGfm from 'remark-gfm'
import { describe, expect, it } from 'vitest'
import { extended, type Piece, sharesOf, tokensPerStep } from './spans'
import { tint } from './tint'

/** What is drawn of `parts`: HTML in which `[name:text]` stands for a mark. */
function drawn(...parts: (string | Piece)[]): string {
  const pieces = parts.map((part): Piece => (typeof part === 'string' ? { text: part, source: null } : part))
  const source = pieces.map(({ text }) => text).join('')
  const options = { source, spans: extended([], 0, pieces), nameOf: (name: string) => name }
  const html = renderToStaticMarkup(
    createElement(ReactMarkdown, { remarkPlugins: [remarkGfm], rehypePlugins: [[tint, options]] }, source),
  )
  return html.replaceAll(/<mark class="guessed by-\d" title="(\w+)">(.*?)<\/mark>/gs, '[$1:$2]')
}

const by = (source: string, text: string): Piece => ({ text, source })

describe('the tint of guessed words', () => {
  it('marks what was guessed and nothing else', () => {
    expect(drawn('The capital', by('lookahead', ' of France'), ' is Paris.')).toBe(
      '<p>The capital[lookahead: of France] is Paris.</p>',
    )
  })

  it('keeps two proposers apart', () => {
    expect(drawn(by('ngram', 'one '), by('draft', 'two'), ' three')).toBe(
      '<p>[ngram:one ][draft:two] three</p>',
    )
  })

  it('goes on through Markdown, whose signs are not drawn', () => {
    expect(drawn('a ', by('draft', '**bold'), '** and ', by('draft', '`code'), '` end')).toBe(
      '<p>a <strong>[draft:bold]</strong> and <code>[draft:code]</code> end</p>',
    )
    expect(drawn('- first\n- sec', by('ngram', 'ond\n- third'))).toBe(
      '<ul>\n<li>first</li>\n<li>sec[ngram:ond]</li>\n<li>[ngram:third]</li>\n</ul>',
    )
  })

  it('finds the code behind its fence, also where the language has the same letters', () => {
    expect(drawn('```python\n', by('lookahead', 'print(1)\n'), 'pass\n```')).toBe(
      '<pre><code class="language-python">[lookahead:print(1)\n]pass\n</code></pre>',
    )
    expect(drawn('```python\nprint', by('lookahead', '(1')), 'a fence that is still open').toBe(
      '<pre><code class="language-python">print[lookahead:(1]\n</code></pre>',
    )
  })

  it('finds code in a list, whose indentation is not drawn', () => {
    expect(drawn('1. so:\n\n   ```\n   a = 1\n   b', by('ngram', ' = 2'), '\n   ```')).toContain(
      'b[ngram: = 2]\n',
    )
  })

  it('takes escapes and entities for the one character that they are', () => {
    expect(
      drawn('1 \\', by('draft', '* 2'), ' &lt; 3 ', by('draft', '&amp; 4'), ' &l', by('draft', 't; 5')),
    ).toBe('<p>1 [draft:* 2] &lt; 3 [draft:&amp; 4] &lt;[draft: 5]</p>')
    expect(drawn('`&amp;', by('draft', ' x'), '`')).toBe('<p><code>&amp;amp;[draft: x]</code></p>')
  })

  it('counts in the characters of the text, whatever their width', () => {
    expect(drawn('海🐬', by('lookahead', '豚🐳'), '尾')).toBe('<p>海🐬[lookahead:豚🐳]尾</p>')
  })

  it('marks the cells of a table, and an address that Markdown makes a link', () => {
    expect(drawn('|a|b|\n|-|-|\n|1|', by('ngram', '2|'), '\n')).toContain('<td>[ngram:2]</td>')
    expect(drawn('see www.', by('ngram', 'a.org'), ' now')).toContain('>www.[ngram:a.org]</a> now')
  })

  it('marks nothing without a guess', () => {
    expect(drawn('**plain** words')).toBe('<p><strong>plain</strong> words</p>')
  })
})

describe('spans', () => {
  it('go on where the text before them ended, and keep empty pieces out', () => {
    const first = extended([], 0, [{ text: 'Hel', source: null }, by('draft', 'lo')])
    const both = extended(first, 5, [by('ngram', ''), by('ngram', ' you')])
    expect(both).toEqual([
      { start: 3, end: 5, source: 'draft' },
      { start: 5, end: 9, source: 'ngram' },
    ])
    expect(extended(both, 9, [{ text: '!', source: null }])).toBe(both)
    expect(sharesOf(both, 10)).toEqual([
      { source: 'draft', share: 0.2 },
      { source: 'ngram', share: 0.4 },
    ])
  })

  it('know how many passes the tokens took', () => {
    expect(tokensPerStep(96, 32)).toBe(1.5)
    expect(tokensPerStep(10, 0)).toBe(1)
    expect(tokensPerStep(0, 0)).toBeNull()
    expect(tokensPerStep(10, undefined)).toBeNull()
  })
})
