import { execFileSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { type ChatRequest, curlChat, pythonChat, pythonLiteral } from './requestCode'

const request: ChatRequest = {
  model: 'smollm2',
  messages: [{ role: 'user', content: 'It\'s "quoted" $HOME `id`\n第二行' }],
  params: { temperature: 0.2, stop: ['\n\n'], top_k: 5 },
}
const url = 'http://localhost:8000/v1'

describe('curl', () => {
  it('survives the shell whatever the message holds', () => {
    // `curl` is a shell function here that prints its last argument: what the server would get.
    const script = `curl() { printf %s "\${@: -1}"; }\n${curlChat(request, 'ts-x', url)}`
    const body = JSON.parse(execFileSync('bash', ['-c', script], { encoding: 'utf8' }))
    expect(body).toEqual({ model: 'smollm2', messages: request.messages, stream: true, ...request.params })
  })
})

describe('python', () => {
  it('writes literals that Python reads', () => {
    expect(pythonLiteral({ a: [true, null, 1.5], b: 'x' })).toBe('{"a": [True, None, 1.5], "b": "x"}')
  })

  it('puts what the SDK does not name into extra_body', () => {
    const code = pythonChat(request, url)
    expect(code).toContain('    temperature=0.2,')
    expect(code).toContain('    extra_body={"top_k": 5},')
  })
})
