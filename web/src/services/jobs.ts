/** Lists of jobs, and what can be done to them. */
import { body, client, sinceWrite, type Wire } from './client'
import type { ActionKind, ActionResult, Counts, JobFilter, JobRow, JobState, Me, Page } from './model'
import { follow } from './stream'

export async function fetchMe(): Promise<Me> {
  const { name, auth, may, server } = body(await client.GET('/v1/me'))
  return { name, auth: auth as Me['auth'], may, server: { version: server.version, store: server.store } }
}

const PAGE = 200
/** So long after it has changed something, a page takes no answer that another page was given: it may be from before. */
const OWN_MS = 3_000

let told: string | undefined

/** The last message of changes: a list that has what it tells of will do, so that all pages it was told to share one. */
const asOf = () => (sinceWrite() > OWN_MS ? told : undefined)

/** Names as the API has them. */
function wireFilter(filter: JobFilter) {
  const { since, until, ...same } = filter
  return { ...same, since_ms: since, until_ms: until }
}

export async function fetchJobs(filter: JobFilter, cursor: string | undefined, signal?: AbortSignal): Promise<Page<JobRow>> {
  const query = { ...wireFilter(filter), cursor, limit: PAGE, as_of: asOf() }
  const page = body(await client.GET('/v1/jobs', { params: { query: query as never }, signal }))
  return { rows: page.jobs.map(jobRow), next: page.next ?? null }
}

function jobRow(row: Wire['JobRow']): JobRow {
  return {
    id: row.id,
    name: row.name,
    state: row.state as JobState,
    submittedAt: row.submitted_at_ms,
    finishedAt: row.finished_at_ms,
    labels: row.labels,
    retriedFrom: row.retried_from,
    reason: row.stop_reason ?? row.reason ?? null,
  }
}

export async function fetchCounts(): Promise<Counts> {
  return body(await client.GET('/v1/jobs/counts')).by_state
}

export interface JobChanges {
  ids: string[]
  /** More have changed than are named. */
  more: boolean
  /** Unless they are known. */
  counts: Counts | undefined
}

export function followChanges(onChanges: (changes: JobChanges) => void, onLive: (live: boolean) => void): () => void {
  return follow('/v1/jobs/changes', {
    onLive,
    onEvent({ event, data }) {
      if (event !== 'jobs') return
      const { ids, more, counts, as_of } = JSON.parse(data) as Wire['JobsChanged']
      told = as_of
      onChanges({ ids, more, counts: counts.by_state })
    },
  })
}

export interface JobsAction {
  action: ActionKind
  target: { ids: string[] } | { filter: JobFilter }
  grant?: number
  reason?: string
  /** The same key again is the same retries again; other actions need none. */
  key: string
}

export interface ActionPage {
  results: ActionResult[]
  next: string | null
}

/** One call's worth of jobs; `next` goes on with the others. */
export async function actOnJobs(action: JobsAction, dryRun: boolean, cursor?: string): Promise<ActionPage> {
  const target = 'ids' in action.target ? { ids: action.target.ids } : { filter: wireFilter(action.target.filter) }
  const answer = body(
    await client.POST('/v1/jobs/actions', {
      body: {
        action: action.action,
        ...target,
        ...(action.grant ? { grant: action.grant } : {}),
        ...(action.reason ? { reason: action.reason } : {}),
        ...(cursor ? { cursor } : {}),
        ...(action.action === 'retry' ? { idempotency_key: action.key } : {}),
        dry_run: dryRun,
        // Which keys go with which action, the server says.
      } as Wire['Actions'],
    }),
  )
  const results = answer.results.map(({ id, name, state, outcome, new_id, problem }) => ({
    id,
    name: name ?? id,
    state: state ?? 'stuck',
    outcome: outcome as ActionResult['outcome'],
    newId: new_id ?? null,
    problem: problem?.detail ?? null,
  }))
  return { results, next: answer.next ?? null }
}

export async function submitJob(file: string, key: string): Promise<{ id: string; warnings: string[] }> {
  const created = body(
    await client.POST('/v1/jobs', {
      params: { header: { 'Idempotency-Key': key } },
      headers: { 'Content-Type': 'application/yaml' },
      body: file as never,
      bodySerializer: text => text as unknown as string,
    }),
  ) as Wire['Created']
  return { id: created.id, warnings: created.warnings.map(warning => warning.message) }
}
