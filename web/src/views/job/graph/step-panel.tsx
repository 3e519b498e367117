/** The items of a step, a page at a time: a fan-out may have a million. */
import { useInfiniteQuery } from '@tanstack/react-query'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useMemo, useRef } from 'react'
import { CountsBar } from '@/components/bars'
import { StateIcon } from '@/components/state'
import { Countdown } from '@/components/time'
import { Button, Failure, IconButton, JobText, Loading } from '@/components/ui'
import { count, inline, plural, words } from '@/lib/format'
import { ITEM_STATES, type Item, type Job } from '@/services/model'
import { itemsQuery } from '@/services/queries'
import { itemLabel, useJobId, useJobSearch } from '../use-job'
import type { StepView } from './steps'

export function StepPanel({ job, step, onClose }: { job: Job; step: StepView; onClose: () => void }) {
  const [search, change] = useJobSearch()
  const datacenters = job.runs.flatMap(run => run.datacenter ?? [])
  const datacenter = search.dc && datacenters.includes(search.dc) ? search.dc : datacenters[0]
  const states = ITEM_STATES.filter(state => (step.counts[state] ?? 0) > 0)
  return (
    <aside
      aria-label={`Step ${step.name}`}
      className="flex min-h-72 shrink-0 flex-col border-t border-line bg-surface lg:w-96 lg:border-t-0 lg:border-l"
    >
      <div className="flex items-center gap-2 border-b border-line py-1.5 pr-1.5 pl-3">
        <StateIcon state={step.state} label={words(step.state)} />
        <h2 className="min-w-0 grow truncate font-semibold">
          <JobText>{step.name}</JobText>
        </h2>
        <Button onClick={() => change({ tab: 'why', item: undefined })}>Why</Button>
        <Button onClick={() => change({ tab: 'logs', log: undefined })}>Logs</Button>
        <IconButton icon="close" label="Close the step" onClick={onClose} />
      </div>
      <div className="flex flex-col gap-2 border-b border-line px-3 py-2">
        <p className="text-muted">
          {plural(step.items, 'item')} · {plural(step.retriesUsed, 'retry', 'retries')} of the budget
          {step.needs.length > 0 && (
            <>
              {' '}
              · needs {step.needs.slice(0, 5).join(', ')}
              {step.needs.length > 5 && ` and ${step.needs.length - 5} more`}
            </>
          )}
        </p>
        {step.error && <JobText className="text-failed">{step.error}</JobText>}
        <CountsBar counts={step.counts} height="h-2" />
        <div role="group" aria-label="Items by state" className="flex flex-wrap gap-1">
          {states.map(state => (
            <button
              key={state}
              type="button"
              aria-pressed={search.state === state}
              onClick={() => change({ state: search.state === state ? undefined : state })}
              className="flex items-center gap-1 rounded border border-line px-1.5 hover:bg-hover aria-pressed:border-accent aria-pressed:bg-accent-soft"
            >
              <StateIcon state={state} size={12} /> {words(state)} <strong>{count(step.counts[state] ?? 0)}</strong>
            </button>
          ))}
          {datacenters.length > 1 &&
            datacenters.map(name => (
              <button
                key={name}
                type="button"
                aria-pressed={name === datacenter}
                onClick={() => change({ dc: name })}
                className="rounded border border-line px-1.5 aria-pressed:border-accent aria-pressed:bg-accent-soft"
              >
                {name}
              </button>
            ))}
        </div>
      </div>
      <Items step={step} datacenter={datacenter} state={search.state} />
    </aside>
  )
}

function Items({ step, datacenter, state }: { step: StepView; datacenter: string | undefined; state: string | undefined }) {
  const id = useJobId()
  const pages = useInfiniteQuery(itemsQuery(id, step.name, datacenter, state))
  const items = useMemo(() => pages.data?.pages.flatMap(page => page.items) ?? [], [pages.data])
  const scroller = useRef<HTMLDivElement>(null)
  const virtual = useVirtualizer({ count: items.length, getScrollElement: () => scroller.current, estimateSize: () => 44, overscan: 8 })
  const shown = virtual.getVirtualItems()
  const last = shown.at(-1)?.index ?? 0
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = pages
  useEffect(() => {
    if (hasNextPage && !isFetchingNextPage && last >= items.length - 20) void fetchNextPage()
  }, [hasNextPage, isFetchingNextPage, fetchNextPage, last, items.length])
  if (pages.error) return <Failure error={pages.error} retry={() => void pages.refetch()} />
  if (pages.isPending) return <Loading what="items" />
  return (
    <div ref={scroller} tabIndex={0} role="list" aria-label="Items" className="min-h-40 grow basis-0 overflow-auto">
      <div className="relative" style={{ height: virtual.getTotalSize() }}>
        {shown.map(({ index, start }) => {
          const item = items[index]
          return item && <ItemRow key={item.index} item={item} step={step} datacenter={datacenter} top={start} />
        })}
      </div>
    </div>
  )
}

function ItemRow({ item, step, datacenter, top }: { item: Item; step: StepView; datacenter: string | undefined; top: number }) {
  const [, change] = useJobSearch()
  const name = itemLabel({ datacenter, step: step.name, index: item.index, fanOut: step.fanOut })
  const facts = [
    item.failures > 0 && plural(item.failures, 'failure'),
    item.preemptions > 0 && plural(item.preemptions, 'loss', 'losses'),
    item.reason && words(item.reason),
  ]
  return (
    <div role="listitem" className="absolute inset-x-0 border-b border-line" style={{ transform: `translateY(${top}px)`, height: 44 }}>
      <button
        type="button"
        onClick={() => change({ tab: 'why', item: name })}
        className="flex h-full w-full items-center gap-2 px-3 text-left hover:bg-hover"
      >
        <StateIcon state={item.state} label={words(item.state)} />
        <span className="flex min-w-0 grow flex-col">
          <span className="truncate font-medium">
            {step.fanOut ? `[${count(item.index)}] ` : ''}
            {item.value !== null && item.value !== undefined && <JobText className="font-normal">{inline(item.value)}</JobText>}
            {!step.fanOut && words(item.state)}
          </span>
          <span className="truncate text-[0.92em] text-muted">
            {item.lastError ? <JobText>{item.lastError}</JobText> : facts.filter(Boolean).join(' · ') || words(item.state)}
          </span>
        </span>
        {item.retryAt !== null && (
          <span className="text-waiting">
            <Countdown to={item.retryAt} />
          </span>
        )}
      </button>
    </div>
  )
}
