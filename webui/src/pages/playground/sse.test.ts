import { expect, it } from 'vitest'
import { readEvents } from './sse'

async function collect(chunks: Uint8Array[]): Promise<string[]> {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk)
      controller.close()
    },
  })
  const found: string[] = []
  for await (const data of readEvents(body)) found.push(data)
  return found
}

it('reads the same events however the bytes are cut, also inside a character', async () => {
  const bytes = new TextEncoder().encode(
    ': ping\n\ndata: {"text":"你好"}\n\nid: 2\ndata: b\r\n\r\ndata: last',
  )
  for (let cut = 0; cut <= bytes.length; cut += 1) {
    expect(await collect([bytes.slice(0, cut), bytes.slice(cut)])).toEqual(['{"text":"你好"}', 'b', 'last'])
  }
})
