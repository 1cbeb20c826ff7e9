import type { ComponentProps } from 'react'
import ReactMarkdown from 'react-markdown'
import remarkGfm from 'remark-gfm'
import type { Span } from './drafted/spans'
import { tint } from './drafted/tint'

// A model's words are not trusted: react-markdown makes elements, never raw HTML, and drops javascript: addresses.
// Pictures would tell their server who reads; they are shown as links.
const COMPONENTS: ComponentProps<typeof ReactMarkdown>['components'] = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noreferrer noopener nofollow">
      {children}
    </a>
  ),
  img: ({ src, alt }) => (
    <a href={typeof src === 'string' ? src : undefined} target="_blank" rel="noreferrer noopener nofollow">
      {alt || String(src)}
    </a>
  ),
}
const PLUGINS = [remarkGfm]

/** `guessed`: parts of the text that are tinted; `nameOf` says whose they are. */
export function Markdown(props: { text: string; guessed?: Span[]; nameOf: (source: string) => string }) {
  const { text, guessed, nameOf } = props
  return (
    <div className="markdown">
      <ReactMarkdown
        remarkPlugins={PLUGINS}
        rehypePlugins={guessed && [[tint, { source: text, spans: guessed, nameOf }]]}
        components={COMPONENTS}
      >
        {text}
      </ReactMarkdown>
    </div>
  )
}
