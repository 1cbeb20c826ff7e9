import type { Answer } from './frames'

export interface Turn {
  /** Also the `chat` of its answers: one id per message sent. */
  id: string
  prompt: string
  answers: Answer[]
}

export interface Message {
  role: 'system' | 'user' | 'assistant'
  content: string
}

/** What `model` is sent: the turns that it answered itself, then the new prompt. Failed turns are left out. */
export function messagesFor(model: string, system: string, turns: Turn[], prompt?: string): Message[] {
  const messages: Message[] = []
  if (system.trim()) messages.push({ role: 'system', content: system })
  for (const turn of turns) {
    const answer = turn.answers.find((one) => one.model === model)
    if (!answer || answer.text === '') continue
    messages.push({ role: 'user', content: turn.prompt }, { role: 'assistant', content: answer.text })
  }
  if (prompt !== undefined) messages.push({ role: 'user', content: prompt })
  return messages
}
