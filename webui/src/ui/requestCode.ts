// A chat request as text to paste into a terminal or a program.

export interface ChatRequest {
  model: string
  messages: { role: string; content: string }[]
  params: Record<string, unknown>
}

export const KEY_PLACEHOLDER = '$TURSIOPS_API_KEY'

export function baseUrl(): string {
  return `${window.location.origin}/v1`
}

/** Text inside single quotes of a POSIX shell. */
function shellQuoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}

export function curlChat(request: ChatRequest, key = KEY_PLACEHOLDER, url = baseUrl()): string {
  const body = { model: request.model, messages: request.messages, stream: true, ...request.params }
  return [
    `curl -N ${url}/chat/completions`,
    `  -H "Authorization: Bearer ${key}"`,
    `  -H "Content-Type: application/json"`,
    `  -d ${shellQuoted(JSON.stringify(body, null, 2))}`,
  ].join(' \\\n')
}

/** Parameters that the OpenAI SDK does not name go in its extra_body. */
const SDK_PARAMS = new Set([
  'temperature',
  'top_p',
  'max_tokens',
  'seed',
  'stop',
  'frequency_penalty',
  'presence_penalty',
])

export function pythonChat(request: ChatRequest, url = baseUrl()): string {
  const named = Object.entries(request.params).filter(([name]) => SDK_PARAMS.has(name))
  const extra = Object.entries(request.params).filter(([name]) => !SDK_PARAMS.has(name))
  return [
    'import os',
    '',
    'from openai import OpenAI',
    '',
    `client = OpenAI(base_url=${pythonLiteral(url)}, api_key=os.environ["TURSIOPS_API_KEY"])`,
    'stream = client.chat.completions.create(',
    `    model=${pythonLiteral(request.model)},`,
    '    messages=[',
    ...request.messages.map((message) => `        ${pythonLiteral(message)},`),
    '    ],',
    ...named.map(([name, value]) => `    ${name}=${pythonLiteral(value)},`),
    ...(extra.length > 0 ? [`    extra_body=${pythonLiteral(Object.fromEntries(extra))},`] : []),
    '    stream=True,',
    ')',
    'for chunk in stream:',
    '    if chunk.choices:',
    '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
  ].join('\n')
}

/** JSON's strings and numbers are Python's too; its three words are not. */
export function pythonLiteral(value: unknown): string {
  if (value === null || value === undefined) return 'None'
  if (value === true) return 'True'
  if (value === false) return 'False'
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(', ')}]`
  if (typeof value === 'object') {
    const pairs = Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pythonLiteral(one)}`)
    return `{${pairs.join(', ')}}`
  }
  return JSON.stringify(value)
}
