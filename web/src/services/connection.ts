/** Whether the server answers. While it does not, it is asked again with a growing pause, and all views wait for that. */
import { createStore } from '@/lib/store'

export type Connection = { away: false } | { away: true; retryAt: number; attempt: number }

const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 15_000

export const connection = createStore<Connection>({ away: false })
let timer: ReturnType<typeof setTimeout> | undefined
const returned = new Set<() => void>()

/** Called when the server answers again. */
export function onReturn(listener: () => void): () => void {
  returned.add(listener)
  return () => returned.delete(listener)
}

export function pauseBefore(attempt: number): number {
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempt)
}

export function serverAnswered(): void {
  if (!connection.get().away) return
  clearTimeout(timer)
  connection.set({ away: false })
  for (const listener of [...returned]) listener()
}

export function serverAway(): void {
  if (connection.get().away) return
  schedule(0)
}

export function retryNow(): void {
  const now = connection.get()
  if (!now.away) return
  clearTimeout(timer)
  void probe(now.attempt)
}

function schedule(attempt: number): void {
  const pause = pauseBefore(attempt)
  connection.set({ away: true, retryAt: Date.now() + pause, attempt })
  timer = setTimeout(() => void probe(attempt), pause)
}

async function probe(attempt: number): Promise<void> {
  try {
    const answer = await fetch('/healthz', { cache: 'no-store', signal: AbortSignal.timeout(5_000) })
    if (answer.status < 500) return serverAnswered()
  } catch {
    // Still away.
  }
  schedule(attempt + 1)
}
