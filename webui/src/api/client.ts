// The one way to the REST API: session cookie, CSRF header, and one error class.

/** An error that people read. `code` is stable; "network" means that no answer came. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint = '',
    readonly fields: Record<string, string[]> = {},
    /** Seconds, from Retry-After. */
    readonly retryAfter: number | null = null,
  ) {
    super(message)
    this.name = 'ApiError'
  }
}

type Query = Record<string, string | number | undefined>

export interface CallOptions {
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  body?: unknown
  query?: Query
  signal?: AbortSignal
}

export const API_ROOT = '/api/v1/'

export function address(path: string, query: Query = {}): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') search.set(name, String(value))
  }
  const text = search.toString()
  return API_ROOT + path + (text ? `?${text}` : '')
}

export function csrfToken(): string {
  return /(?:^|;\s*)csrftoken=([^;]+)/.exec(document.cookie)?.[1] ?? ''
}

export function requestHeaders(hasBody: boolean): Record<string, string> {
  const headers: Record<string, string> = {
    Accept: 'application/json',
    'Accept-Language': document.documentElement.lang,
    'X-CSRFToken': csrfToken(),
  }
  if (hasBody) headers['Content-Type'] = 'application/json'
  return headers
}

/** Answer of `path` under /api/v1. Throws ApiError; an abort passes through as it is. */
export async function call<T>(path: string, options: CallOptions = {}): Promise<T> {
  const response = await send(path, options)
  if (!response.ok) throw await toError(response)
  if (response.status === 204) return undefined as T
  const text = await response.text()
  if (text === '') return undefined as T
  try {
    return JSON.parse(text) as T
  } catch {
    throw new ApiError(response.status, 'bad_answer', 'The answer is not JSON.')
  }
}

/** A file, saved by the browser under the name that the answer gives it. Throws ApiError. */
export async function download(
  path: string,
  options: CallOptions = {},
): Promise<{ size: number; headers: Headers }> {
  const response = await send(path, options)
  if (!response.ok) throw await toError(response)
  const blob = await response.blob()
  const name = /filename="([^"]+)"/.exec(response.headers.get('Content-Disposition') ?? '')?.[1]
  const link = document.createElement('a')
  link.href = URL.createObjectURL(blob)
  link.download = name ?? 'download'
  link.click()
  URL.revokeObjectURL(link.href)
  return { size: blob.size, headers: response.headers }
}

async function send(path: string, { method = 'GET', body, query, signal }: CallOptions): Promise<Response> {
  try {
    return await fetch(address(path, query), {
      method,
      headers: requestHeaders(body !== undefined),
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'same-origin',
      signal,
    })
  } catch (error) {
    if (signal?.aborted) throw error
    throw new ApiError(0, 'network', 'The platform does not answer.')
  }
}

/** Reads both error shapes: the control plane's, and OpenAI's that the gateway uses. */
export async function toError(response: Response): Promise<ApiError> {
  const seconds = Number.parseInt(response.headers.get('Retry-After') ?? '', 10)
  const retryAfter = Number.isNaN(seconds) ? null : seconds
  let error: Partial<{ code: string; message: string; hint: string; fields: Record<string, string[]> }> = {}
  try {
    error = ((await response.json()) as { error?: typeof error }).error ?? {}
  } catch {
    // No JSON: a proxy's page, or a crash. Status and status text are all there is.
  }
  return new ApiError(
    response.status,
    error.code ?? `http_${response.status}`,
    error.message ?? `${response.status} ${response.statusText}`.trim(),
    error.hint ?? '',
    error.fields ?? {},
    retryAfter,
  )
}
