/** The keys of a `retry` block as an editor needs them: how a value is written, read and compared. */
import { duration } from './format'

export type KeyKind = 'count' | 'duration' | 'flag' | 'number' | 'choice' | 'codes'

export interface PolicyKey {
  key: string
  /** What the editor calls it, where the key is long. */
  label?: string
  kind: KeyKind
  choices?: string[]
  about: string
}

/** In the order of the checks they take part in. */
export const POLICY_KEYS: PolicyKey[] = [
  { key: 'max_attempts', kind: 'count', about: 'Executions charged to failures, the first included; a number or unlimited.' },
  { key: 'retryable', kind: 'flag', about: 'false: never again after a failure.' },
  { key: 'backoff', kind: 'choice', choices: ['fixed', 'linear', 'exponential', 'fibonacci'], about: 'How delays grow.' },
  { key: 'initial_delay', kind: 'duration', about: 'The first delay: 500ms, 2s, 1m.' },
  { key: 'max_delay', kind: 'duration', about: 'The longest delay.' },
  { key: 'multiplier', kind: 'number', about: 'Of an exponential backoff.' },
  { key: 'jitter', kind: 'choice', choices: ['none', 'full', 'equal', 'decorrelated'], about: 'How delays are spread.' },
  { key: 'delay_budget', kind: 'duration', about: "The sum of an item's delays; empty: without limit." },
  { key: 'window', kind: 'duration', about: 'The wall clock since the first failure; empty: without limit.' },
  { key: 'max_preemptions', kind: 'count', about: 'Losses of the worker that are survived.' },
  { key: 'max_deferrals', kind: 'count', about: 'Deferrals that are survived.' },
  { key: 'retry_budget.per_step', label: 'budget per_step', kind: 'count', about: 'Retries of this step, in all datacenters together.' },
  { key: 'retry_budget.total', label: 'budget total', kind: 'count', about: 'Retries of the whole job.' },
  { key: 'exit_codes', kind: 'codes', about: 'stop: never these, as in “stop 2, 64”; retry: only these.' },
]

const KIND = new Map(POLICY_KEYS.map(({ key, kind }) => [key, kind]))

/** A value of a plan in the words of a job file. Plans have lengths of time in milliseconds. */
export function writtenValue(key: string, value: unknown): string {
  const kind = KIND.get(key)
  if (value === null || value === undefined) return kind === 'count' ? 'unlimited' : ''
  if (kind === 'duration' || key === 'max_retry_after' || key === 'increment')
    return typeof value === 'number' ? duration(value) : String(value)
  if (kind === 'codes') return codes(value as { retry?: number[]; stop?: number[] })
  if (Array.isArray(value))
    return value.map(one => (typeof one === 'number' && key === 'backoff' ? duration(one) : writtenOther(one))).join(', ')
  return writtenOther(value)
}

function writtenOther(value: unknown): string {
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

function codes({ retry = [], stop = [] }: { retry?: number[]; stop?: number[] }): string {
  const parts = [retry.length ? `retry ${retry.join(', ')}` : '', stop.length ? `stop ${stop.join(', ')}` : '']
  return parts.filter(Boolean).join('; ')
}

/** What was typed, as the body of a request has it. Checking is the server's: what cannot be read here is sent as it is. */
export function readValue(key: string, text: string): unknown {
  const kind = KIND.get(key)
  const typed = text.trim()
  if (kind === 'flag') return typed === 'true' ? true : typed === 'false' ? false : typed
  if ((kind === 'count' || kind === 'number') && /^\d+(\.\d+)?$/.test(typed)) return Number(typed)
  if (kind === 'codes') return readCodes(typed)
  return typed
}

function readCodes(text: string): unknown {
  const lists: Record<string, number[]> = {}
  for (const part of text
    .split(';')
    .map(one => one.trim())
    .filter(Boolean)) {
    const match = /^(retry|stop)\s+([\d\s,]+)$/.exec(part)
    if (!match?.[1] || !match[2]) return text
    lists[match[1]] = match[2]
      .split(/[\s,]+/)
      .filter(Boolean)
      .map(Number)
  }
  return lists
}

/** Only what differs from what was planned. */
export function changedKeys(planned: Record<string, { value: unknown }>, typed: Record<string, string>): Record<string, unknown> {
  const changed = Object.entries(typed).filter(
    ([key, text]) => text.trim() !== '' && text.trim() !== writtenValue(key, planned[key]?.value),
  )
  const body: Record<string, unknown> = {}
  for (const [key, text] of changed) {
    const [block, inner] = key.split('.')
    if (inner === undefined) body[key] = readValue(key, text)
    else body[block ?? ''] = { ...(body[block ?? ''] as object | undefined), [inner]: readValue(key, text) }
  }
  return body
}
