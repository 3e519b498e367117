/** Why a job is where it is, who drew on its budgets, and what another policy would have done. */
import { body, client, type Wire } from './client'
import type { Accounts, BudgetDraws, Decision, Explanation, ItemName, JudgedVerdict, Role, Verdict, Waiting, WhatIfAnswer } from './model'

interface WireItemName {
  name: string
  datacenter: string | null
  step: string
  role: string
  item: number
  value?: unknown
}

interface WireDecision {
  verdict: string
  cause?: string
  delay_ms?: number
  due_at_ms?: number
  reason?: string
}

interface WireVerdict extends WireDecision {
  seq: number
  at_ms: number
  item: WireItemName
  attempt: number
  outcome: string | null
  error: string | null
  rule: { check: number | null; text: string }
  before: Accounts
  after: Accounts
  would_change: { text: string; changes: { key: string; from: unknown; to: unknown }[] } | null
  nothing_would: string | null
}

interface WireWaiting {
  name: string
  item: WireItemName | null
  state: string
  since_ms: number | null
  until_ms: number | null
  because?: string | null
  sentence: string
  binding?: { limit: string; sentence: string } | null
}

export async function fetchExplanation(id: string, step?: string): Promise<Explanation> {
  const wire = body(await client.GET('/v1/jobs/{id}/explain', { params: { path: { id }, query: { step } } }))
  return {
    state: wire.job.state as Explanation['state'],
    sentence: wire.job.sentence,
    steps: wire.steps.map(({ name, step: of, state, sentence }) => ({ name, step: of, state, sentence })),
    waiting: (wire.waiting as unknown as WireWaiting[]).map(waiting),
    verdicts: (wire.verdicts as unknown as WireVerdict[]).map(verdict),
    leftOut: wire.left_out.verdicts,
  }
}

function itemName({ item: index, role, ...same }: WireItemName): ItemName {
  return { ...same, role: role as Role, index }
}

function waiting(wire: WireWaiting): Waiting {
  return {
    name: wire.name,
    item: wire.item && itemName(wire.item),
    state: wire.state,
    since: wire.since_ms,
    until: wire.until_ms,
    because: wire.because ?? null,
    sentence: wire.sentence,
    binding: wire.binding ?? null,
  }
}

function decision(wire: WireDecision): Decision {
  if (wire.verdict === 'retry')
    return { verdict: 'retry', cause: wire.cause ?? 'failure', delay: wire.delay_ms ?? 0, dueAt: wire.due_at_ms ?? 0 }
  if (wire.verdict === 'stop') return { verdict: 'stop', reason: wire.reason ?? 'unknown' }
  return { verdict: 'complete' }
}

function verdict(wire: WireVerdict): Verdict {
  return {
    seq: wire.seq,
    at: wire.at_ms,
    item: itemName(wire.item),
    attempt: wire.attempt,
    outcome: wire.outcome,
    error: wire.error,
    decision: decision(wire),
    rule: wire.rule,
    before: wire.before,
    after: wire.after,
    counterfactual: wire.would_change && { text: wire.would_change.text, changes: wire.would_change.changes },
    nothingWould: wire.nothing_would,
  }
}

export async function fetchBudgetDraws(id: string): Promise<BudgetDraws> {
  const wire = body(await client.GET('/v1/jobs/{id}/budget', { params: { path: { id } } }))
  const draws = wire.draws.map(draw => ({
    seq: draw.seq,
    at: draw.at_ms,
    item: draw.item.name,
    attempt: draw.attempt,
    cause: draw.cause,
    before: draw.job_retries_before,
    after: draw.job_retries_after,
  }))
  return { total: wire.total.limit === null ? null : wire.total, perStep: wire.per_step, draws, leftOut: wire.left_out }
}

/** `changes`: keys of a `retry` block, in the words of a job file. Null asks for all steps. */
export async function askWhatIf(
  id: string,
  step: string | null,
  changes: Record<string, unknown>,
  signal?: AbortSignal,
): Promise<WhatIfAnswer> {
  const request = { step, with: changes } as Wire['WhatIf']
  const wire = body(await client.POST('/v1/jobs/{id}/what-if', { params: { path: { id } }, body: request, signal }))
  const policy = Object.entries(wire.policy).map(([key, change]) => ({ key, ...(change as { from: unknown; to: unknown }) }))
  return { policy, verdicts: wire.verdicts.map(judged), summary: wire.summary, differs: wire.differs }
}

function judged(wire: Wire['JudgedVerdict']): JudgedVerdict {
  return {
    seq: wire.seq,
    item: itemName(wire.item as WireItemName),
    attempt: wire.attempt,
    recorded: decision(wire.recorded as WireDecision),
    judged: wire.judged ? decision(wire.judged as WireDecision) : null,
    differs: wire.differs,
    accounts: (wire.judged_accounts as Accounts | null) ?? null,
    note: wire.note,
  }
}
