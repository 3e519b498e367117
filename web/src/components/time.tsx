import { useSyncExternalStore } from 'react'
import { countdown, duration, exactTime, relative } from '@/lib/format'

const listeners = new Set<() => void>()
let timer: ReturnType<typeof setInterval> | undefined
let now = Date.now()

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  timer ??= setInterval(() => {
    now = Date.now()
    for (const each of [...listeners]) each()
  }, 1000)
  return () => {
    listeners.delete(listener)
    if (listeners.size > 0) return
    clearInterval(timer)
    timer = undefined
  }
}

/** The time, again each second. One timer for the whole page. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now)
}

export function Ago({ at }: { at: number }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={exactTime(at)} className="whitespace-nowrap">
      {relative(at, useNow())}
    </time>
  )
}

/** How long something took, or has taken so far. */
export function Took({ from, to }: { from: number; to: number | null }) {
  const at = useNow()
  return (
    <span className="whitespace-nowrap" title={`${exactTime(from)} – ${to === null ? 'now' : exactTime(to)}`}>
      {to === null ? countdown(Math.max(0, at - from)) : duration(to - from)}
    </span>
  )
}

export function Countdown({ to, late = 'due' }: { to: number; late?: string }) {
  const left = to - useNow()
  return (
    <span className="whitespace-nowrap" title={exactTime(to)} data-countdown>
      {left > 0 ? countdown(left) : late}
    </span>
  )
}
