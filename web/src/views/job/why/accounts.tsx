/** What an item has to spend and has spent: the accounts as bars, and which of them ends it first. */
import { SpentBar } from '@/components/bars'
import { Icon } from '@/components/icons'
import { duration } from '@/lib/format'
import type { Accounts, Verdict } from '@/services/model'

interface Account {
  name: string
  before: number
  after: number
  limit: number | null
  time: boolean
  /** Whether others draw on it too. */
  shared?: 'job' | 'step'
}

/** Every account that moved or has a limit worth showing. `windowSpent`: since the first failure, by the wall clock. */
export function accountsOf(before: Accounts, after: Accounts, windowSpent: { before: number; after: number } | null): Account[] {
  const own: Account[] = [
    { name: 'failures', before: before.failures, after: after.failures, limit: after.max_attempts, time: false },
    { name: 'preemptions', before: before.preemptions, after: after.preemptions, limit: after.max_preemptions, time: false },
    { name: 'deferrals', before: before.deferrals, after: after.deferrals, limit: after.max_deferrals, time: false },
    {
      name: 'delay budget',
      before: before.delay_spent_ms + before.downtime_ms,
      after: after.delay_spent_ms + after.downtime_ms,
      limit: after.delay_budget_ms,
      time: true,
    },
  ]
  if (after.window_ms !== null) {
    own.push({ name: 'window', before: windowSpent?.before ?? 0, after: windowSpent?.after ?? 0, limit: after.window_ms, time: true })
  }
  return [
    ...own,
    { name: 'step budget', before: before.step_retries, after: after.step_retries, limit: after.step_budget, time: false, shared: 'step' },
    { name: 'job budget', before: before.job_retries, after: after.job_retries, limit: after.job_budget, time: false, shared: 'job' },
  ]
}

/** A budget that nobody has spent and nobody limits tells nothing. */
const tells = (account: Account) => account.limit !== null || account.after > 0
const rare = (account: Account) => account.after === 0 && (account.name === 'preemptions' || account.name === 'deferrals')

export function AccountBars({ accounts, binding, all = false }: { accounts: Account[]; binding?: string; all?: boolean }) {
  const shown = accounts.filter(account => tells(account) && (all || !rare(account)))
  return (
    <ul className="grid gap-x-6 gap-y-1.5 @xl:grid-cols-2">
      {shown.map(account => (
        <AccountBar key={account.name} account={account} binds={binding === account.name} />
      ))}
    </ul>
  )
}

function AccountBar({ account, binds }: { account: Account; binds: boolean }) {
  const say = (value: number) => (account.time ? duration(value) : String(value))
  const limit = account.limit === null ? 'no limit' : say(account.limit)
  const moved = account.before !== account.after
  const label = `${account.name}: ${moved ? `${say(account.before)} → ` : ''}${say(account.after)} of ${limit}`
  return (
    <li className="grid grid-cols-[112px_1fr_auto] items-center gap-2" data-account={account.name}>
      <span className={`flex items-center gap-1 whitespace-nowrap ${binds ? 'font-semibold' : 'text-muted'}`}>
        {account.name}
        {binds && <Icon name="goal" size={12} label="binds next" />}
      </span>
      <SpentBar used={account.after} before={account.before} limit={account.limit} label={label} />
      <span className="min-w-24 text-right whitespace-nowrap">
        {moved && (
          <>
            <span className="text-muted">{say(account.before)}</span> →{' '}
          </>
        )}
        <strong>{say(account.after)}</strong> <span className="text-muted">of {limit}</span>
      </span>
    </li>
  )
}

const KEY_OF: Record<string, string> = {
  max_attempts: 'failures',
  max_preemptions: 'preemptions',
  max_deferrals: 'deferrals',
  delay_budget: 'delay budget',
  window: 'window',
  step_budget: 'step budget',
  job_budget: 'job budget',
  'retry_budget.total': 'job budget',
  'retry_budget.per_step': 'step budget',
}

/** The account that a limit's key belongs to. */
export const accountOfLimit = (limit: string) => KEY_OF[limit]

/** Nothing moves in it: it is where the last decision left it or, of an item that goes on, where the clock is `now`. */
export function standingWindow(verdicts: Verdict[], last: Verdict, now: number | null): { before: number; after: number } | null {
  const spent = windowSpent(verdicts, last)
  if (!spent) return null
  const elapsed = spent.after + (now === null ? 0 : Math.max(0, now - last.at))
  return { before: elapsed, after: elapsed }
}

/** The window's clock runs from the first failure on; the verdicts say when that was. */
export function windowSpent(verdicts: Verdict[], upTo: Verdict): { before: number; after: number } | null {
  const first = verdicts.find(verdict => verdict.after.failures > 0)
  if (!first || upTo.after.window_ms === null) return null
  const before = verdicts[verdicts.indexOf(upTo) - 1]
  return { before: before && before.at >= first.at ? before.at - first.at : 0, after: Math.max(0, upTo.at - first.at) }
}
