/** States: one colour and one shape each, the same in all views. */
import { words } from '@/lib/format'
import { Icon, isIcon, type IconName } from './icons'

export type Tone = 'succeeded' | 'running' | 'failed' | 'waiting' | 'paused' | 'idle' | 'lost'

const TONES: Record<string, Tone> = {
  succeeded: 'succeeded',
  connected: 'succeeded',
  running: 'running',
  awaiting_callback: 'running',
  handed_over: 'running',
  failed: 'failed',
  timed_out: 'failed',
  not_completed: 'failed',
  backing_off: 'waiting',
  partial: 'waiting',
  away: 'waiting',
  paused: 'paused',
  draining: 'paused',
  interrupted: 'lost',
  stuck: 'lost',
  worker_lost: 'lost',
  quarantined: 'lost',
}

const SHAPE_OF: Record<string, IconName> = {
  timed_out: 'backing_off',
  not_completed: 'partial',
  worker_lost: 'interrupted',
  killed: 'cancelled',
  handed_over: 'awaiting_callback',
}

const toneOf = (state: string): Tone => TONES[state] ?? 'idle'

const TEXT: Record<Tone, string> = {
  succeeded: 'text-succeeded',
  running: 'text-running',
  failed: 'text-failed',
  waiting: 'text-waiting',
  paused: 'text-paused',
  idle: 'text-idle',
  lost: 'text-lost',
}
const SOFT: Record<Tone, string> = {
  succeeded: 'bg-succeeded-soft',
  running: 'bg-running-soft',
  failed: 'bg-failed-soft',
  waiting: 'bg-waiting-soft',
  paused: 'bg-paused-soft',
  idle: 'bg-idle-soft',
  lost: 'bg-lost-soft',
}
const SOLID: Record<Tone, string> = {
  succeeded: 'bg-succeeded-solid',
  running: 'bg-running-solid',
  failed: 'bg-failed-solid',
  waiting: 'bg-waiting-solid',
  paused: 'bg-paused-solid',
  idle: 'bg-idle-solid',
  lost: 'bg-lost-solid',
}

const toneText = (state: string) => TEXT[toneOf(state)]
const toneSoft = (state: string) => SOFT[toneOf(state)]
export const toneSolid = (state: string) => SOLID[toneOf(state)]
/** For SVG. */
export const toneFill = (state: string) => `var(--${toneOf(state)}-solid)`

export function StateIcon({ state, size = 14, label }: { state: string; size?: number; label?: string }) {
  const name = SHAPE_OF[state] ?? (isIcon(state) ? state : 'pending')
  return <Icon name={name} size={size} label={label} className={toneText(state)} />
}

export function StateBadge({ state, large = false }: { state: string; large?: boolean }) {
  const size = large ? 'px-2 py-1 text-[1.05em]' : 'px-1.5 py-px'
  return (
    <span
      className={`inline-flex items-center gap-1.5 rounded-md font-medium whitespace-nowrap ${size} ${toneSoft(state)} ${toneText(state)}`}
      data-state={state}
    >
      <StateIcon state={state} size={large ? 15 : 13} />
      {words(state)}
    </span>
  )
}
