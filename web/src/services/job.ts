/** One job: its status, items, plan, events, outputs. */
import { body, client, type Wire } from './client'
import type {
  Attempt,
  AttemptOfItem,
  Item,
  ItemState,
  Job,
  JobEvent,
  JobState,
  OutputRow,
  Page,
  Plan,
  PlanStep,
  Requested,
  Role,
  Run,
  StepStatus,
} from './model'
import { Problem } from './problem'
import { follow } from './stream'

export async function fetchJob(id: string): Promise<Job> {
  return job(body(await client.GET('/v1/jobs/{id}', { params: { path: { id } } })))
}

function job(wire: Wire['JobStatus'] & { reason?: string }): Job {
  const { best_effort: effort, retry_budget: budget } = wire
  const asked = (['cancel', 'pause', 'retry'] as const).flatMap(kind => {
    const request = wire[`${kind}_request`]
    return request ? [{ kind, request: requested(request) }] : []
  })
  return {
    id: wire.id,
    name: wire.name,
    state: wire.state as JobState,
    submittedAt: wire.submitted_at_ms,
    finishedAt: wire.finished_at_ms,
    completion: wire.completion,
    retriedFrom: wire.retried_from,
    budget: budget && {
      used: budget.used,
      total: budget.total?.effective ?? null,
      perStep: budget.per_step?.effective ?? null,
      ratio: budget.ratio ?? null,
    },
    bestEffort: effort
      ? {
          min: effort.min_datacenters.effective,
          deadlineAt: effort.deadline_at_ms,
          deadline: effort.deadline_ms,
          grace: effort.grace_ms,
          lateResults: effort.late_results,
        }
      : null,
    requests: asked,
    result: wire.result ? { datacenters: wire.result.datacenters, outputs: wire.result.outputs as Record<string, unknown> } : null,
    stuckBecause: wire.reason ?? null,
    runs: wire.runs.map(run),
  }
}

function requested(wire: { at_ms: number; by: string | null; reason: string | null }): Requested {
  return { at: wire.at_ms, by: wire.by, reason: wire.reason }
}

function run(wire: Wire['Run']): Run {
  const steps = Object.entries(wire.steps).map(([name, of]) => step(name, of))
  return { datacenter: wire.datacenter, state: wire.state as JobState, late: wire.late ?? false, steps }
}

function step(name: string, wire: Wire['Step']): StepStatus {
  return {
    name,
    state: wire.state,
    counts: wire.counts,
    retriesUsed: wire.retries_used,
    skippedBecause: wire.skipped_because ?? null,
    error: wire.error ?? null,
    items: wire.items.map(item),
    fallback: wire.fallback ? item(wire.fallback) : null,
    compensation: wire.compensation ? item(wire.compensation) : null,
  }
}

function item(wire: Wire['Item']): Item {
  return {
    index: wire.index,
    value: wire.value,
    state: wire.state as ItemState,
    failures: wire.failures,
    preemptions: wire.preemptions,
    delaySpent: wire.delay_spent_ms,
    retryAt: wire.retry_available_at_ms,
    lastError: wire.last_error,
    reason: wire.reason,
    output: wire.output,
    outputLeftOut: wire.output_left_out ?? false,
    progress: wire.progress?.said,
    attempts: wire.attempts.map(attempt),
  }
}

function attempt(wire: Wire['Attempt']): Attempt {
  return {
    number: wire.attempt,
    worker: wire.worker,
    state: wire.state,
    exitCode: wire.exit_code,
    signal: wire.signal,
    error: wire.error,
    startedAt: wire.started_at_ms,
    finishedAt: wire.finished_at_ms,
  }
}

export interface ItemsPage {
  total: number | null
  counts: Record<string, number>
  items: Item[]
  next: number | null
}

interface ItemsQuery {
  datacenter?: string
  state?: string
  from?: number
  limit?: number
}

export async function fetchItems(id: string, stepName: string, query: ItemsQuery): Promise<ItemsPage> {
  const params = { path: { id, step: stepName }, query: query as never }
  const page = body(await client.GET('/v1/jobs/{id}/steps/{step}/items', { params }))
  return { total: page.total, counts: page.counts, items: page.items.map(item), next: page.next }
}

export async function fetchPlan(id: string): Promise<Plan> {
  const wire = body(await client.GET('/v1/jobs/{id}/plan', { params: { path: { id } } }))
  const budget = budgetPolicy(wire.job.retry_budget)
  const steps = Object.entries(wire.steps).map(([name, of]) => planStep(name, of, budget))
  const file = wire.file && { text: wire.file.text, reconstructed: wire.file.reconstructed }
  return { steps, goals: wire.goals, datacenters: wire.datacenters ?? [], file }
}

/** The job's budget beside each step's policy: both can be edited to ask what would have been. */
function budgetPolicy(wire: unknown): PlanStep['policy'] {
  const budget = (wire ?? {}) as { total?: { effective: number } | null; per_step?: { effective: number } | null }
  const keys = [
    ['retry_budget.total', budget.total],
    ['retry_budget.per_step', budget.per_step],
  ] as const
  return Object.fromEntries(keys.flatMap(([key, of]) => (of ? [[key, { value: of.effective, source: 'job' }]] : [])))
}

const OWN_PLACE = new Set([
  'policy',
  'needs',
  'goal',
  'action',
  'items',
  'delays_ms',
  'binding_limit',
  'worst_case_ms',
  'delay_total_ms',
  'jitter',
])

function planStep(name: string, wire: Wire['StoredStep'], budget: PlanStep['policy']): PlanStep {
  const others = Object.entries(wire).filter(([key, value]) => !OWN_PLACE.has(key) && tells(value))
  return {
    name,
    needs: wire.needs,
    action: wire.action,
    fanOut: wire.for_each !== null,
    policy: { ...(wire.policy as PlanStep['policy']), ...budget },
    delays: wire.delays_ms,
    bindingLimit: wire.binding_limit,
    worstCase: wire.worst_case_ms ?? null,
    details: others,
  }
}

function tells(value: unknown): boolean {
  return value !== null && value !== undefined && !(typeof value === 'object' && Object.keys(value).length === 0)
}

const EVENTS_PAGE = 1000

export async function fetchEvents(id: string, after: number, limit = EVENTS_PAGE): Promise<JobEvent[]> {
  const page = body(await client.GET('/v1/jobs/{id}/events', { params: { path: { id }, query: { after, limit } } }))
  return (page as Wire['EventsPage']).events.map(event)
}

function event(wire: Wire['Event']): JobEvent {
  const { seq, at, event: kind, ...detail } = wire as Wire['Event'] & Record<string, unknown>
  return { seq, at, kind, detail }
}

/** How many events there are: sequence numbers have no gaps, so that one event each at some twenty places tells. */
export async function lastEvent(id: string): Promise<number> {
  const exists = async (seq: number) => (await fetchEvents(id, seq - 1, 1)).length > 0
  let high = EVENTS_PAGE
  while (await exists(high)) high *= 8
  let low = 0
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2)
    if (await exists(middle)) low = middle
    else high = middle
  }
  return low
}

/** `onEnd`: nothing more will happen. */
export function followEvents(
  id: string,
  after: number,
  on: { event: (event: JobEvent) => void; live: (live: boolean) => void },
): () => void {
  return follow(`/v1/jobs/${id}/events`, {
    after: String(after),
    onLive: on.live,
    isLast: ({ event: kind }) => kind === 'end' || kind === 'problem',
    onEvent({ event: kind, data }) {
      if (kind !== 'end' && kind !== 'problem') on.event(event(JSON.parse(data) as Wire['Event']))
    },
  })
}

/** In the order they began. */
export async function fetchAttempts(id: string, plan: Plan, cursor: string | undefined): Promise<Page<AttemptOfItem>> {
  const page = body(await client.GET('/v1/jobs/{id}/attempts', { params: { path: { id }, query: { cursor, limit: 200 } } }))
  const steps = new Map(plan.steps.map((of, i) => [of.name, i]))
  const rows = page.attempts.map(row => ({
    run: row.datacenter === null ? 0 : plan.datacenters.indexOf(row.datacenter),
    step: steps.get(row.step) ?? 0,
    role: row.role as Role,
    item: row.item,
    attempt: attempt(row),
  }))
  return { rows, next: page.next }
}

export async function fetchOutputs(id: string, cursor: string | undefined): Promise<Page<OutputRow>> {
  const page = body(await client.GET('/v1/jobs/{id}/outputs', { params: { path: { id }, query: { cursor, limit: 100 } } }))
  return { rows: page.outputs as OutputRow[], next: page.next }
}

export function isNotFound(error: unknown): boolean {
  return error instanceof Problem && (error.status === 404 || error.status === 400)
}
