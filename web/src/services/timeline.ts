/** From a job's events, or from its items, to rows of a timeline: what each item did at which time. */
import type { AttemptOfItem, JobEvent, Role } from './model'

export type SpanKind = 'queued' | 'attempt' | 'callback' | 'backoff' | 'paused'

export interface Span {
  kind: SpanKind
  from: number
  /** Null: it goes on. */
  to: number | null
  /** Of an attempt: how it ended. */
  end?: string
  attempt?: number
  worker?: string
  error?: string
}

export interface Row {
  key: string
  run: number
  step: number
  role: Role
  index: number
  spans: Span[]
  /** When the next attempt is due. */
  retryAt: number | null
  state: string
}

interface WireItem {
  run: number
  step: number
  role?: Role
  index: number
}

export interface Band {
  from: number
  to: number | null
}

/** Items of a step that have a row before they have started. */
const MOST_WAITING_ROWS = 200

/** Folds events one after the other, so that a running job goes on where the fold stood. */
export class TimelineFold {
  readonly rows = new Map<string, Row>()
  readonly pauses: Band[] = []
  /** Times in which the server was down. */
  readonly downtimes: Band[] = []
  seq = 0
  private readyAt = new Map<string, number>()
  private kept = new Set<string>()

  add(event: JobEvent): void {
    if (event.seq <= this.seq) return
    this.seq = event.seq
    const { detail, at } = event
    const item = detail.item as WireItem | undefined
    if (item) this.ofItem(event.kind, this.row(item), at, detail)
    else this.ofJob(event.kind, at, detail)
  }

  private row(item: WireItem): Row {
    const { run, step, role = 'item', index } = item
    const key = `${run}.${step}.${role}.${index}`
    let row = this.rows.get(key)
    if (!row) {
      row = { key, run, step, role, index, spans: [], retryAt: null, state: 'waiting' }
      const ready = role === 'item' ? this.readyAt.get(`${run}.${step}`) : undefined
      if (ready !== undefined) row.spans.push({ kind: 'queued', from: ready, to: null })
      this.rows.set(key, row)
    }
    return row
  }

  private ofItem(kind: string, row: Row, at: number, detail: Record<string, unknown>): void {
    if (kind === 'AttemptStarted') {
      close(row, at)
      row.spans.push({ kind: 'attempt', from: at, to: null, attempt: detail.attempt as number, worker: detail.worker as string })
      row.retryAt = null
      row.state = 'running'
    } else if (kind === 'CallbackAwaited') {
      const attempt = close(row, at, 'handed_over')
      row.spans.push({ kind: 'callback', from: at, to: null, attempt: attempt?.attempt, worker: attempt?.worker })
      row.state = 'awaiting_callback'
    } else if (kind === 'AttemptEnded') {
      const [end, error] = endOf(detail.outcome)
      close(row, at, end, error)
    } else if (kind === 'RetryScheduled') {
      const dueAt = detail.due_at as number
      row.retryAt = dueAt
      row.state = 'backing_off'
      if (dueAt > at) row.spans.push({ kind: 'backoff', from: at, to: null })
      else row.spans.push({ kind: 'queued', from: at, to: null })
    } else if (kind === 'RetryDue') {
      close(row, at)
      row.retryAt = null
      row.state = 'ready'
      row.spans.push({ kind: 'queued', from: at, to: null })
    } else if (kind === 'ItemSucceeded' || kind === 'ItemFailed') {
      close(row, at)
      row.retryAt = null
      row.state = kind === 'ItemSucceeded' ? 'succeeded' : 'failed'
    }
  }

  private ofJob(kind: string, at: number, detail: Record<string, unknown>): void {
    const { run, step } = detail as { run?: number; step?: number }
    if (kind === 'JobAccepted') {
      for (const kept of (detail.kept as { run: number; step: number }[] | undefined) ?? []) this.kept.add(`${kept.run}.${kept.step}`)
    } else if (kind === 'StepReady') {
      this.readyAt.set(`${run}.${step}`, at)
      // Of a retried job's step some items are done already, and will never start.
      const items = this.kept.has(`${run}.${step}`) ? 0 : Math.min(detail.items as number, MOST_WAITING_ROWS)
      for (let index = 0; index < items; index++) this.row({ run: run ?? 0, step: step ?? 0, index }).state = 'ready'
    } else if (kind === 'JobPaused') this.pauses.push({ from: at, to: null })
    else if (kind === 'JobResumed') closeBand(this.pauses, at)
    else if (kind === 'EngineRestarted') this.downtimes.push({ from: detail.down_since as number, to: at })
    else if (kind === 'StepFailing') this.halt(at, row => row.run === run && row.step === step && !underWay(row), 'skipped')
    else if (kind === 'RunFailing' || kind === 'RunEnded') this.halt(at, row => row.run === run, 'cancelled')
    else if (kind === 'JobEnded') closeBand(this.pauses, at)
  }

  /** What had not ended has, without an outcome of its own. */
  private halt(at: number, which: (row: Row) => boolean, state: string): void {
    for (const row of this.rows.values()) {
      const last = row.spans.at(-1)
      if (!last || last.to !== null || !which(row)) continue
      close(row, at, 'killed')
      row.retryAt = null
      row.state = state
    }
  }
}

function underWay(row: Row): boolean {
  const kind = row.spans.at(-1)?.kind
  return kind === 'attempt' || kind === 'callback'
}

function close(row: Row, at: number, end?: string, error?: string): Span | undefined {
  const last = row.spans.at(-1)
  if (!last || last.to !== null) return undefined
  last.to = at
  if (last.kind === 'attempt' || last.kind === 'callback') {
    last.end = end
    last.error = error
  }
  return last
}

function closeBand(bands: Band[], at: number): void {
  const last = bands.at(-1)
  if (last && last.to === null) last.to = at
}

interface WireFailure {
  kind: string | { exited?: number; signalled?: number }
  http_status?: number
  error?: string | { message?: string }
}

/** The state of an attempt, as a status has it, and what went wrong. */
function endOf(outcome: unknown): [string, string | undefined] {
  const { lost, failed } = (outcome ?? {}) as { lost?: { why?: string }; failed?: WireFailure }
  if (lost) return ['worker_lost', lost.why ?? 'the worker was lost']
  if (!failed) return ['succeeded', undefined]
  const { kind, http_status: status, error } = failed
  const state = kind === 'timed_out' || kind === 'not_completed' ? kind : 'failed'
  const fact =
    typeof kind === 'string'
      ? status
        ? `HTTP status ${status}`
        : kind.replaceAll('_', ' ')
      : kind.exited !== undefined
        ? `exit code ${kind.exited}`
        : `signal ${kind.signalled}`
  const text = typeof error === 'string' ? error : error?.message
  return [state, text ? `${fact}: ${text}` : fact]
}

/** Of a log too long to fold: attempts with what lies between them, queueing and backoff not told apart. */
export function rowsOfAttempts(attempts: AttemptOfItem[]): Row[] {
  const rows = new Map<string, Row>()
  for (const { run, step, role, item, attempt } of attempts) {
    const key = `${run}.${step}.${role}.${item}`
    const row = rows.get(key) ?? { key, run, step, role, index: item, spans: [], retryAt: null, state: 'running' }
    const free = row.spans.at(-1)?.to
    if (typeof free === 'number' && attempt.startedAt > free) row.spans.push({ kind: 'backoff', from: free, to: attempt.startedAt })
    const end = attempt.finishedAt === null ? undefined : attempt.state
    row.spans.push({
      kind: 'attempt',
      from: attempt.startedAt,
      to: attempt.finishedAt,
      end,
      attempt: attempt.number,
      worker: attempt.worker,
      error: attempt.error ?? undefined,
    })
    row.state = attempt.state
    rows.set(key, row)
  }
  return [...rows.values()]
}

/** Waiting that a pause overlapped is shown as paused: nothing could have started then. */
export function withPauses(spans: Span[], pauses: Band[], now: number): Span[] {
  if (pauses.length === 0) return spans
  return spans.flatMap(span => {
    if (span.kind !== 'queued' && span.kind !== 'backoff') return [span]
    const parts: Span[] = []
    let from = span.from
    const end = span.to ?? now
    for (const pause of pauses) {
      const start = Math.max(pause.from, from)
      const stop = Math.min(pause.to ?? now, end)
      if (stop <= start) continue
      if (start > from) parts.push({ ...span, from, to: start })
      parts.push({ kind: 'paused', from: start, to: pause.to === null && span.to === null ? null : stop })
      from = stop
    }
    if (from < end || (span.to === null && parts.at(-1)?.to !== null)) parts.push({ ...span, from })
    return parts
  })
}
