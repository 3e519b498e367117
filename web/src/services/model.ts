/** The words of the dashboard. Times are Unix milliseconds, lengths of time milliseconds. */

export const JOB_STATES = ['pending', 'running', 'paused', 'succeeded', 'partial', 'failed', 'cancelled', 'interrupted', 'stuck'] as const
export type JobState = (typeof JOB_STATES)[number]
export const ENDED: ReadonlySet<string> = new Set(['succeeded', 'partial', 'failed', 'cancelled'])

export const ITEM_STATES = [
  'running',
  'awaiting_callback',
  'backing_off',
  'ready',
  'waiting',
  'failed',
  'succeeded',
  'cancelled',
  'skipped',
] as const
export type ItemState = (typeof ITEM_STATES)[number]

export const STOP_REASONS = [
  'attempts_exhausted',
  'job_budget_exhausted',
  'step_budget_exhausted',
  'delay_budget_exhausted',
  'window_expired',
  'preemptions_exhausted',
  'deferrals_exhausted',
  'permanent_error',
  'rule_stop',
  'not_retryable',
  'exit_code_excluded',
  'exit_code_not_listed',
  'unschedulable',
  'job_timed_out',
  'step_failed',
  'cancelled',
] as const

export interface Me {
  name: string | null
  auth: 'required' | 'none'
  may: { read: boolean; submit: boolean; admin: boolean }
  server: { version: string; store: string }
}

export interface JobRow {
  id: string
  name: string
  state: JobState
  submittedAt: number
  finishedAt: number | null
  labels: Record<string, string>
  retriedFrom: string | null
  /** Why it ended, or why it is stuck. */
  reason: string | null
}

export interface JobFilter {
  state?: JobState[]
  name?: string
  label?: string
  text?: string
  reason?: string
  since?: number
  until?: number
}

export interface Page<T> {
  rows: T[]
  next: string | null
}

export type Counts = Record<string, number>

export interface Requested {
  at: number
  by: string | null
  reason: string | null
}

export interface Attempt {
  number: number
  worker: string
  state: string
  exitCode: number | null
  signal: number | null
  error: string | null
  startedAt: number
  finishedAt: number | null
}

/** An attempt with its place: run and step by their number in the plan. */
export interface AttemptOfItem {
  run: number
  step: number
  role: Role
  item: number
  attempt: Attempt
}

export interface Item {
  index: number
  value: unknown
  state: ItemState
  failures: number
  preemptions: number
  delaySpent: number
  retryAt: number | null
  lastError: string | null
  reason: string | null
  output: unknown
  outputLeftOut: boolean
  progress: unknown
  attempts: Attempt[]
}

export interface StepStatus {
  name: string
  state: string
  counts: Counts
  retriesUsed: number
  skippedBecause: string | null
  error: string | null
  items: Item[]
  fallback: Item | null
  compensation: Item | null
}

export interface Run {
  datacenter: string | null
  state: JobState
  late: boolean
  steps: StepStatus[]
}

export interface Budget {
  used: number
  total: number | null
  perStep: number | null
  ratio: number | null
}

export interface BestEffort {
  min: number
  deadlineAt: number | null
  deadline: number
  grace: number
  lateResults: string
}

export interface Job {
  id: string
  name: string
  state: JobState
  submittedAt: number
  finishedAt: number | null
  completion: { reason: string; ratio: number } | null
  retriedFrom: string | null
  budget: Budget | null
  bestEffort: BestEffort | null
  requests: { kind: 'cancel' | 'pause' | 'retry'; request: Requested }[]
  result: { datacenters: string[]; outputs: Record<string, unknown> } | null
  stuckBecause: string | null
  runs: Run[]
}

export type Role = 'item' | 'fallback' | 'compensation'

export interface ItemName {
  name: string
  datacenter: string | null
  step: string
  role: Role
  index: number
  value?: unknown
}

export interface Accounts {
  failures: number
  max_attempts: number | null
  preemptions: number
  max_preemptions: number | null
  deferrals: number
  max_deferrals: number | null
  delay_spent_ms: number
  downtime_ms: number
  delay_budget_ms: number | null
  window_ms: number | null
  job_retries: number
  job_budget: number | null
  step_retries: number
  step_budget: number | null
}

export type Decision =
  { verdict: 'complete' } | { verdict: 'retry'; cause: string; delay: number; dueAt: number } | { verdict: 'stop'; reason: string }

export interface Verdict {
  seq: number
  at: number
  item: ItemName
  attempt: number
  outcome: string | null
  error: string | null
  decision: Decision
  rule: { check: number | null; text: string }
  before: Accounts
  after: Accounts
  /** The smallest change that would have made a retry of this stop, or why nothing would. */
  counterfactual: { text: string; changes: { key: string; from: unknown; to: unknown }[] } | null
  nothingWould: string | null
}

export interface Waiting {
  name: string
  item: ItemName | null
  state: string
  since: number | null
  until: number | null
  because: string | null
  sentence: string
  /** Which limit ends the retries first: "2 attempts or 41 s, whichever first". */
  binding: { limit: string; sentence: string } | null
}

export interface Explanation {
  state: JobState
  sentence: string
  steps: { name: string; step: string; state: string; sentence: string }[]
  waiting: Waiting[]
  verdicts: Verdict[]
  leftOut: number
}

export interface BudgetDraws {
  total: { used: number; limit: number | null } | null
  perStep: { step: string; used: number; limit: number | null }[]
  draws: { seq: number; at: number; item: string; attempt: number; cause: string; before: number; after: number }[]
  leftOut: number
}

export interface PolicyValue {
  value: unknown
  source: string
}

export interface PlanStep {
  name: string
  needs: string[]
  action: string
  fanOut: boolean
  policy: Record<string, PolicyValue>
  delays: number[]
  bindingLimit: string | null
  worstCase: number | null
  /** What else the file says of it, for people. */
  details: [string, unknown][]
}

export interface Plan {
  steps: PlanStep[]
  goals: string[]
  datacenters: string[]
  file: { text: string; reconstructed: boolean } | null
}

export interface WhatIfAnswer {
  policy: { key: string; from: unknown; to: unknown }[]
  verdicts: JudgedVerdict[]
  summary: string
  differs: number
}

export interface JudgedVerdict {
  seq: number
  item: ItemName
  attempt: number
  recorded: Decision
  judged: Decision | null
  differs: boolean
  accounts: Accounts | null
  note: string | null
}

export interface JobEvent {
  seq: number
  at: number
  kind: string
  /** What the kind of event has to tell beside these. */
  detail: Record<string, unknown>
}

export interface Log {
  name: string
  step: string
  datacenter: string | null
  role: Role
  item: number
  attempt: number
  size: number
  arriving: boolean
}

export interface OutputRow {
  datacenter: string | null
  step: string
  item: number
  output: unknown
}

export interface Worker {
  name: string
  datacenter: string | null
  state: string
  why: string | null
  slots: number
  credits: number
  busy: number
  cpu: number | null
  cpuUsed: number
  memory: number | null
  memoryUsed: number
  /** It is taken for lost then, if nothing is heard of it before. */
  lostAt: number
  labels: Record<string, string>
  functions: string[]
}

export type ActionKind = 'cancel' | 'pause' | 'resume' | 'retry'

export interface ActionResult {
  id: string
  name: string
  state: string
  outcome: 'ok' | 'would' | 'refused'
  newId: string | null
  problem: string | null
}

export interface Overview {
  from: number
  bucket: number
  since: number
  scope: string
  buckets: {
    at: number
    submitted: number
    succeeded: number
    failed: number
    attempts: number
    failures: number
    retries: { failure: number; preemption: number; deferral: number }
    latenessP50: number | null
    latenessP99: number | null
  }[]
  /** Jobs that wait for a worker, by why none takes them. */
  queue: { reason: string; jobs: number }[]
  failing: { jobName: string; step: string; failures: number; lastError: string | null; lastJob: string }[]
  budgets: { job: string; name: string; account: string; used: number; limit: number }[]
  grid: { workers: string[]; items: { job: string; name: string; cells: { worker: string; failures: number; successes: number }[] }[] }
}
