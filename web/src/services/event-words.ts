/** What an event says, in one line for people. */
import { duration } from '@/lib/format'
import type { JobEvent } from './model'

interface WireItem {
  run: number
  step: number
  role?: string
  index: number
}

export interface Names {
  steps: { name: string; fanOut: boolean }[]
  datacenters: string[]
}

export interface EventWords {
  subject: string
  text: string
  /** A state whose colour and shape it has. */
  state: string
}

const STATES: Record<string, string> = {
  JobAccepted: 'pending',
  JobStarted: 'running',
  JobPaused: 'paused',
  JobResumed: 'running',
  CancelRequested: 'cancelled',
  EngineRestarted: 'interrupted',
  StepReady: 'ready',
  AttemptStarted: 'running',
  CallbackAwaited: 'awaiting_callback',
  ItemSucceeded: 'succeeded',
  RetryScheduled: 'backing_off',
  RetryDue: 'ready',
  ItemFailed: 'failed',
  StepSucceeded: 'succeeded',
  StepFailing: 'failed',
  StepFailed: 'failed',
  StepSkipped: 'skipped',
  RunFailing: 'failed',
}

export function eventWords({ kind, detail }: JobEvent, names: Names): EventWords {
  const item = detail.item as WireItem | undefined
  const state =
    kind === 'AttemptEnded'
      ? endState(detail.outcome)
      : kind === 'JobEnded'
        ? String(detail.state)
        : kind === 'RunEnded'
          ? runState(detail.end)
          : (STATES[kind] ?? 'pending')
  return { subject: item ? itemSubject(item, names) : placeSubject(detail, names), text: text(kind, detail, names), state }
}

function itemSubject({ run, step, role, index }: WireItem, { steps, datacenters }: Names): string {
  const of = steps[step]
  const suffix = role === 'fallback' ? '!' : role === 'compensation' ? '~' : of?.fanOut ? `[${index}]` : ''
  return `${datacenters[run] ? `${datacenters[run]}/` : ''}${of?.name ?? step}${suffix}`
}

function placeSubject(detail: Record<string, unknown>, { steps, datacenters }: Names): string {
  const { run, step } = detail as { run?: number; step?: number }
  const place = run !== undefined ? datacenters[run] : undefined
  if (step !== undefined) return `${place ? `${place}/` : ''}${steps[step]?.name ?? step}`
  return place ?? 'job'
}

function endState(outcome: unknown): string {
  const { lost, failed } = (outcome ?? {}) as { lost?: unknown; failed?: { kind: unknown } }
  if (lost) return 'worker_lost'
  if (!failed) return 'succeeded'
  return failed.kind === 'timed_out' ? 'timed_out' : failed.kind === 'not_completed' ? 'not_completed' : 'failed'
}

const runState = (end: unknown) => (end === 'timed_out' ? 'failed' : String(end))

function text(kind: string, detail: Record<string, unknown>, { steps }: Names): string {
  const of = detail as Record<string, string & number>
  const asked = detail.requested as { by?: string; reason?: string } | undefined
  const by = `${asked?.by ? ` by ${asked.by}` : ''}${asked?.reason ? `: ${asked.reason}` : ''}`
  switch (kind) {
    case 'JobAccepted':
      return detail.retried_from ? `accepted, as a retry of ${String(detail.retried_from)}` : 'accepted'
    case 'JobStarted':
      return 'started'
    case 'JobPaused':
      return `paused${by}`
    case 'JobResumed':
      return `resumed${by}`
    case 'CancelRequested':
      return `cancel asked for${by}`
    case 'EngineRestarted':
      return 'the server came back'
    case 'StepReady':
      return `ready, ${of.items} ${of.items === 1 ? 'item' : 'items'}`
    case 'AttemptStarted':
      return `attempt ${of.attempt} started on ${of.worker}`
    case 'AttemptProgressed':
      return `attempt ${of.attempt} says ${JSON.stringify(detail.progress)}`
    case 'CallbackAwaited':
      return `attempt ${of.attempt} was taken by a service, which will call back`
    case 'AttemptEnded':
      return `attempt ${of.attempt} ended on ${of.worker}: ${outcome(detail.outcome)}`
    case 'RetryScheduled':
      return of.delay_ms ? `retry in ${duration(of.delay_ms)}, charged to ${of.cause}` : `retry at once, charged to ${of.cause}`
    case 'RetryDue':
      return 'retry due'
    case 'ItemSucceeded':
      return 'succeeded'
    case 'ItemFailed':
      return `stopped: ${of.reason}`
    case 'StepFailed':
      return detail.continues ? 'failed; what needs it goes on' : 'failed'
    case 'StepSkipped':
      return `skipped, because ${steps[of.because as unknown as number]?.name ?? of.because} failed`
    case 'RunEnded':
      return `ended: ${String(detail.end)}`
    case 'JobEnded':
      return `ended: ${of.state} (${of.reason})`
    case 'LateDatacenterResult':
      return detail.added ? 'a late result, added to the job’s' : 'a late result, only logged'
    default:
      return kind.replace(/(?<=[a-z])([A-Z])/g, (_, letter: string) => ` ${letter.toLowerCase()}`).toLowerCase()
  }
}

function outcome(value: unknown): string {
  const { failed, lost } = (value ?? {}) as {
    failed?: { kind: string | { exited?: number; signalled?: number }; error?: unknown }
    lost?: { why?: string }
  }
  if (lost) return `the worker was lost${lost.why ? `: ${lost.why}` : ''}`
  if (!failed) return 'succeeded'
  const { kind, error } = failed
  const fact =
    typeof kind === 'string'
      ? kind.replaceAll('_', ' ')
      : kind.exited !== undefined
        ? `exit code ${kind.exited}`
        : `signal ${kind.signalled}`
  return error ? `${fact}: ${typeof error === 'string' ? error : JSON.stringify(error)}` : fact
}
