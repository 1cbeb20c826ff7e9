/** Sampling of a chat; null leaves the choice to the engine and is not sent. */
export interface Parameters {
  system: string
  temperature: number | null
  top_p: number | null
  max_tokens: number | null
  seed: number | null
  frequency_penalty: number | null
  presence_penalty: number | null
  stop: string[]
}

export const DEFAULT_PARAMETERS: Parameters = {
  system: '',
  temperature: null,
  top_p: null,
  max_tokens: 512,
  seed: null,
  frequency_penalty: null,
  presence_penalty: null,
  stop: [],
}

export function toParams({ system: _system, stop, ...numbers }: Parameters): Record<string, unknown> {
  const set = Object.entries(numbers).filter(([, value]) => value !== null)
  return { ...Object.fromEntries(set), ...(stop.length > 0 ? { stop } : {}) }
}
