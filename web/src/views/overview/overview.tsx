/** How it goes: on this server, in the last hour. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { SpentBar } from '@/components/bars'
import { StateIcon } from '@/components/state'
import { Ago } from '@/components/time'
import { Failure, JobText, Loading, Segments } from '@/components/ui'
import { count, duration, shortCount, words } from '@/lib/format'
import { useLive } from '@/services/live'
import { JOB_STATES, type Overview } from '@/services/model'
import { countsQuery, overviewQuery } from '@/services/queries'
import { Chart } from './chart'
import { FailureGrid } from './grid'

const RANGES = ['5', '15', '60'] as const

export default function OverviewPage() {
  useLive()
  const { minutes = 60 } = useSearch({ from: '/overview' })
  const navigate = useNavigate({ from: '/overview' })
  const overview = useQuery(overviewQuery(minutes))
  if (overview.error && !overview.data) return <Failure error={overview.error} retry={() => void overview.refetch()} />
  if (!overview.data) return <Loading what="the overview" />
  return (
    <div className="flex min-h-0 grow flex-col gap-3 overflow-auto p-3 sm:p-4">
      <div className="flex flex-wrap items-center gap-3">
        <h1 className="text-[1.35em] font-semibold tracking-tight">Overview</h1>
        <span className="text-muted">
          {overview.data.scope}, up since <Ago at={overview.data.since} />
        </span>
        <span className="grow" />
        <Segments
          label="Time"
          options={RANGES.map(value => ({ value, label: value === '60' ? '1 hour' : `${value} min` }))}
          value={RANGES.find(range => range === String(minutes)) ?? '60'}
          onChange={value => void navigate({ search: { minutes: value === '60' ? undefined : Number(value) }, replace: true })}
        />
      </div>
      <StateCounts />
      <Charts overview={overview.data} />
      <div className="grid gap-3 lg:grid-cols-3">
        <Panel title="Jobs that wait for a worker">
          <Queue queue={overview.data.queue} />
        </Panel>
        <Panel title="Steps that fail most">
          <Failing failing={overview.data.failing} />
        </Panel>
        <Panel title="Budgets near their end">
          <Budgets budgets={overview.data.budgets} />
        </Panel>
      </div>
      <Panel title="A poison item, or a bad worker?">
        <FailureGrid grid={overview.data.grid} />
      </Panel>
    </div>
  )
}

function StateCounts() {
  const { data: counts } = useQuery(countsQuery())
  const shown = JOB_STATES.filter(state => !['interrupted', 'stuck'].includes(state) || (counts?.[state] ?? 0) > 0)
  return (
    <ul className="grid grid-cols-2 gap-2 sm:grid-cols-4 lg:grid-cols-7">
      {shown.map(state => (
        <li key={state}>
          <Link to="/jobs" search={{ state: [state] }} className="card flex items-center gap-2.5 px-3 py-2 hover:bg-hover">
            <StateIcon state={state} size={18} />
            <span className="flex flex-col">
              <span className="text-[1.35em] leading-tight font-semibold">{counts ? shortCount(counts[state] ?? 0) : '–'}</span>
              <span className="text-[0.92em] text-muted">{words(state)}</span>
            </span>
          </Link>
        </li>
      ))}
    </ul>
  )
}

function Charts({ overview: { buckets, bucket } }: { overview: Overview }) {
  const times = buckets.map(one => one.at)
  const perMinute = (value: number) => (value * 60_000) / bucket
  const total = (pick: (one: Overview['buckets'][number]) => number) => buckets.reduce((sum, one) => sum + pick(one), 0)
  const rate = (label: string, color: string, pick: (one: Overview['buckets'][number]) => number, dash?: number[]) => ({
    label,
    color,
    dash,
    values: buckets.map(one => perMinute(pick(one))),
  })
  return (
    <div className="grid gap-3 lg:grid-cols-2">
      <Chart
        title="Jobs a minute"
        times={times}
        format={shortCount}
        summary={`${count(total(one => one.submitted))} submitted, ${count(total(one => one.succeeded))} succeeded, ${count(total(one => one.failed))} failed`}
        series={[
          rate('submitted', '--idle-solid', one => one.submitted, [4, 3]),
          rate('succeeded', '--succeeded-solid', one => one.succeeded),
          rate('failed', '--failed-solid', one => one.failed),
        ]}
      />
      <Chart
        title="Attempts a minute"
        times={times}
        format={shortCount}
        summary={`${count(total(one => one.attempts))} attempts, ${count(total(one => one.failures))} failures`}
        series={[rate('attempts', '--running-solid', one => one.attempts), rate('failures', '--failed-solid', one => one.failures, [5, 3])]}
      />
      <Chart
        title="Retries a minute, by cause"
        times={times}
        format={shortCount}
        summary={`${count(total(one => one.retries.failure))} after failures, ${count(total(one => one.retries.preemption))} after losses, ${count(total(one => one.retries.deferral))} deferred`}
        series={[
          rate('failure', '--failed-solid', one => one.retries.failure),
          rate('lost worker', '--lost-solid', one => one.retries.preemption, [5, 3]),
          rate('deferral', '--waiting-solid', one => one.retries.deferral, [2, 3]),
        ]}
      />
      <Chart
        title="Lateness of retries"
        times={times}
        format={duration}
        summary={`at the worst ${duration(Math.max(0, ...buckets.map(one => one.latenessP99 ?? 0)))} later than due`}
        series={[
          { label: 'half are within', color: '--running-solid', values: buckets.map(one => one.latenessP50) },
          { label: '99 of 100 are within', color: '--waiting-solid', dash: [5, 3], values: buckets.map(one => one.latenessP99) },
        ]}
      />
    </div>
  )
}

function Panel({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="card min-w-0">
      <h2 className="border-b border-line px-3 py-2 font-semibold">{title}</h2>
      {children}
    </section>
  )
}

function Queue({ queue }: { queue: Overview['queue'] }) {
  const most = Math.max(1, ...queue.map(one => one.jobs))
  if (queue.length === 0) return <p className="px-3 py-4 text-muted">Nothing waits.</p>
  return (
    <ul className="flex flex-col gap-2 px-3 py-2.5">
      {queue.map(one => (
        <li key={one.reason} className="grid grid-cols-[1fr_auto] gap-x-3">
          <span className="inert">{words(one.reason)}</span>
          <strong>{count(one.jobs)}</strong>
          <span className="col-span-2 h-1.5 rounded-full bg-idle-soft">
            <span className="block h-full rounded-full bg-waiting-solid" style={{ width: `${(one.jobs / most) * 100}%` }} />
          </span>
        </li>
      ))}
    </ul>
  )
}

function Failing({ failing }: { failing: Overview['failing'] }) {
  if (failing.length === 0) return <p className="px-3 py-4 text-muted">No step has failed.</p>
  return (
    <ul>
      {failing.slice(0, 8).map(one => (
        <li key={`${one.jobName}/${one.step}`} className="flex items-baseline gap-2 border-b border-line px-3 py-1.5 last:border-0">
          <strong className="w-8 shrink-0 text-right text-failed">{count(one.failures)}</strong>
          <span className="min-w-0 grow">
            <Link to="/jobs/$id" params={{ id: one.lastJob }} search={{ tab: 'why' }} className="hover:underline">
              <JobText>{`${one.jobName} / ${one.step}`}</JobText>
            </Link>
            {one.lastError && (
              <span className="block truncate text-muted">
                <JobText>{one.lastError}</JobText>
              </span>
            )}
          </span>
        </li>
      ))}
    </ul>
  )
}

function Budgets({ budgets }: { budgets: Overview['budgets'] }) {
  if (budgets.length === 0) return <p className="px-3 py-4 text-muted">No budget is near its end.</p>
  return (
    <ul className="flex flex-col gap-2 px-3 py-2.5">
      {budgets.slice(0, 8).map(one => (
        <li key={`${one.job}/${one.account}`} className="grid grid-cols-[1fr_auto] items-baseline gap-x-3">
          <Link to="/jobs/$id" params={{ id: one.job }} search={{ tab: 'why' }} className="min-w-0 truncate hover:underline">
            <JobText>{one.name}</JobText> <span className="text-muted">{words(one.account)}</span>
          </Link>
          <span>
            {one.used} of {one.limit}
          </span>
          <span className="col-span-2">
            <SpentBar used={one.used} limit={one.limit} label={`${one.used} of ${one.limit}`} />
          </span>
        </li>
      ))}
    </ul>
  )
}
