/** Live data: server-sent events read with `fetch`, because only that can send the token in a header. */
import { SseParser, type ServerEvent } from '@/lib/sse'
import { send, url } from './client'
import { onReturn, pauseBefore } from './connection'
import { Problem, Unreachable } from './problem'

interface Options {
  /** Goes on after this event. */
  after?: string
  onEvent: (event: ServerEvent) => void
  /** True while a connection is open. */
  onLive?: (live: boolean) => void
  /** An event that ends the stream for good. */
  isLast?: (event: ServerEvent) => boolean
}

/** Follows until the returned function is called, over any number of connections. */
export function follow(path: string, options: Options): () => void {
  const stop = new AbortController()
  void run(path, options, stop.signal)
  return () => stop.abort()
}

async function run(path: string, options: Options, signal: AbortSignal): Promise<void> {
  let last = options.after
  let failures = 0
  while (!signal.aborted) {
    try {
      const headers: Record<string, string> = { Accept: 'text/event-stream' }
      if (last) headers['Last-Event-ID'] = last
      const response = await send(new Request(url(path), { headers, signal, cache: 'no-store' }))
      options.onLive?.(true)
      failures = 0
      for await (const event of eventsOf(response)) {
        if (event.id) last = event.id
        options.onEvent(event)
        if (options.isLast?.(event)) return options.onLive?.(false)
      }
    } catch (error) {
      if (signal.aborted) return
      options.onLive?.(false)
      // Refused: asking again would be refused again.
      if (error instanceof Problem && error.status < 500 && error.status !== 429) return
      if (error instanceof Unreachable) await returnOfServer(signal)
    }
    options.onLive?.(false)
    await pause(pauseBefore(failures++), signal)
  }
}

async function* eventsOf(response: Response): AsyncGenerator<ServerEvent> {
  const parser = new SseParser()
  for await (const piece of pieces(response)) yield* parser.push(piece)
}

/** The text of a response as it comes. */
export async function* pieces(response: Response): AsyncGenerator<string> {
  if (!response.body) return
  const reader = response.body.getReader()
  const decoder = new TextDecoder()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) break
      yield decoder.decode(value, { stream: true })
    }
    yield decoder.decode()
  } finally {
    reader.cancel().catch(() => {})
  }
}

function returnOfServer(signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const off = onReturn(done)
    signal.addEventListener('abort', done, { once: true })
    function done() {
      off()
      resolve()
    }
  })
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true })
  })
}
