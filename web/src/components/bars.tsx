/** Bars for what is spent and for what is in which state. */
import { count, words } from '@/lib/format'
import { toneSolid } from './state'

const ORDER = ['succeeded', 'running', 'awaiting_callback', 'backing_off', 'ready', 'waiting', 'failed', 'cancelled', 'skipped']

/** How many items are in which state, as one bar. */
export function CountsBar({ counts, height = 'h-1.5' }: { counts: Record<string, number>; height?: string }) {
  const shown = ORDER.filter(state => (counts[state] ?? 0) > 0)
  const total = shown.reduce((sum, state) => sum + (counts[state] ?? 0), 0)
  const text = shown.map(state => `${count(counts[state] ?? 0)} ${words(state)}`).join(', ')
  return (
    <span
      role="img"
      aria-label={text || 'no items'}
      title={text}
      className={`flex w-full overflow-hidden rounded-full bg-idle-soft ${height}`}
    >
      {shown.map(state => (
        // At least a pixel or two: one failed item of a million must be seen.
        <span key={state} className={toneSolid(state)} style={{ flexGrow: (counts[state] ?? 0) / total, minWidth: 3 }} />
      ))}
    </span>
  )
}

/** What is used of a limit; `fresh`: the part that the last decision took. */
export function SpentBar({ used, before = used, limit, label }: { used: number; before?: number; limit: number | null; label: string }) {
  const whole = limit === null ? Math.max(used * 1.6, 1) : Math.max(limit, used, 1)
  const part = (value: number) => `${Math.min(100, (value / whole) * 100)}%`
  const tight = limit !== null && used >= limit
  const near = limit !== null && !tight && used / Math.max(limit, 1) >= 0.66
  const color = tight ? 'bg-failed-solid' : near ? 'bg-waiting-solid' : 'bg-running-solid'
  return (
    <span
      role="img"
      aria-label={label}
      className={`relative block h-2 w-full overflow-hidden rounded-full bg-idle-soft ${limit === null ? 'mask-r-from-60%' : ''}`}
    >
      <span className={`absolute inset-y-0 left-0 opacity-55 ${color}`} style={{ width: part(used) }} />
      <span className={`absolute inset-y-0 left-0 ${color}`} style={{ width: part(Math.min(before, used)) }} />
    </span>
  )
}
