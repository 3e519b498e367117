/** The log of events, which is the truth: from any place on, and live at its end. */
import { useQuery } from '@tanstack/react-query'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useRef, useState } from 'react'
import { useShortcuts } from '@/app/shortcuts'
import { StateIcon } from '@/components/state'
import { Button, Failure, JobText, Loading } from '@/components/ui'
import { clockTimeMs, count, exactTime } from '@/lib/format'
import { eventWords, type Names } from '@/services/event-words'
import { fetchEvents, followEvents, lastEvent } from '@/services/job'
import type { JobEvent } from '@/services/model'
import { planQuery } from '@/services/queries'
import { useJobId, useJobSearch } from './use-job'

/** Events in memory; the earliest are dropped first. */
const MOST_HELD = 20_000
const ROW_HEIGHT = 28

interface Held {
  events: JobEvent[]
  live: boolean
  atEnd: boolean
  error: Error | null
  loadMore: () => void
}

/** From `after` on in pages; at the end of the log it goes over to the live stream. */
function useEvents(id: string, after: number): Held {
  const [state, setState] = useState<{ events: JobEvent[]; atEnd: boolean; live: boolean; error: Error | null }>({
    events: [],
    atEnd: false,
    live: false,
    error: null,
  })
  const busy = useRef(false)
  const last = state.events.at(-1)?.seq ?? after
  const add = (more: JobEvent[], atEnd: boolean) =>
    setState(before => {
      const known = before.events.at(-1)?.seq ?? -1
      const fresh = more.filter(event => event.seq > known)
      return { ...before, atEnd: before.atEnd || atEnd, error: null, events: [...before.events, ...fresh].slice(-MOST_HELD) }
    })
  const load = async (from: number) => {
    if (busy.current) return
    busy.current = true
    try {
      const page = await fetchEvents(id, from, 500)
      add(page, page.length < 500)
    } catch (error) {
      setState(before => ({ ...before, error: error as Error }))
    } finally {
      busy.current = false
    }
  }
  useEffect(() => {
    setState({ events: [], atEnd: false, live: false, error: null })
    busy.current = false
    void load(after)
  }, [id, after])
  useEffect(() => {
    if (!state.atEnd) return
    // Events come one by one; a busy job's are shown together.
    let waiting: JobEvent[] = []
    const timer = setInterval(() => waiting.length > 0 && (add(waiting, true), (waiting = [])), 150)
    const stop = followEvents(id, last, { event: event => waiting.push(event), live: live => setState(before => ({ ...before, live })) })
    return () => (clearInterval(timer), stop())
  }, [id, after, state.atEnd])
  return { ...state, loadMore: () => void load(last) }
}

export default function Events() {
  const id = useJobId()
  const [search, change] = useJobSearch()
  const plan = useQuery(planQuery(id))
  const held = useEvents(id, search.after ?? 0)
  const [jumping, setJumping] = useState(false)
  const scroller = useRef<HTMLDivElement>(null)
  const { events } = held
  const virtual = useVirtualizer({
    count: events.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 20,
  })
  const shown = virtual.getVirtualItems()
  const lastShown = shown.at(-1)?.index ?? 0
  useEffect(() => {
    if (!held.atEnd && events.length > 0 && lastShown >= events.length - 50) held.loadMore()
  }, [held.atEnd, events.length, lastShown])
  useEffect(() => {
    if (search.follow && held.atEnd) virtual.scrollToIndex(events.length - 1)
  }, [search.follow, held.atEnd, events.length])
  const position = events.findIndex(event => event.seq === search.seq)
  const move = (by: number) => {
    const next = Math.min(events.length - 1, Math.max(0, position + by))
    change({ seq: events[next]?.seq })
    virtual.scrollToIndex(next)
  }
  const toEnd = async () => {
    setJumping(true)
    const last = await lastEvent(id)
    change({ after: Math.max(0, last - 500) || undefined, follow: true })
    setJumping(false)
  }
  useShortcuts('Events', [
    { keys: 'j', about: 'Next event', run: () => move(1) },
    { keys: 'k', about: 'Previous event', run: () => move(-1) },
    { keys: 'G', about: 'To the end, and follow', run: () => void toEnd() },
  ])
  if (held.error && events.length === 0) return <Failure error={held.error} />
  if (!plan.data || events.length === 0) return <Loading what="events" />
  const names: Names = plan.data
  const selected = events[position]
  return (
    <div className="flex min-h-[320px] grow flex-col lg:flex-row">
      <div className="flex min-h-0 min-w-0 grow flex-col">
        <div className="flex flex-wrap items-center gap-2 border-b border-line px-3 py-1.5 text-muted sm:px-4">
          <span data-events={events.length}>
            {count(events[0]?.seq ?? 0)} to {count(events.at(-1)?.seq ?? 0)}
            {held.live ? ', live' : held.atEnd ? '' : ', more below'}
          </span>
          <span className="grow" />
          {(search.after ?? 0) > 0 && <Button onClick={() => change({ after: undefined, follow: undefined })}>To the beginning</Button>}
          <Button
            aria-pressed={search.follow ?? false}
            disabled={jumping}
            icon="down"
            onClick={() => (search.follow ? change({ follow: undefined }) : void toEnd())}
          >
            {search.follow ? 'Following' : 'Follow the end'}
          </Button>
        </div>
        <div ref={scroller} tabIndex={0} role="list" aria-label="Events" className="min-h-0 grow basis-0 overflow-auto bg-surface">
          <div className="relative" style={{ height: virtual.getTotalSize() }}>
            {shown.map(({ index, start }) => {
              const event = events[index]
              return (
                event && (
                  <EventRow
                    key={event.seq}
                    event={event}
                    names={names}
                    top={start}
                    current={event === selected}
                    onSelect={() => change({ seq: event === selected ? undefined : event.seq })}
                  />
                )
              )
            })}
          </div>
        </div>
      </div>
      {selected && (
        <aside
          aria-label={`Event ${selected.seq}`}
          className="max-h-72 shrink-0 overflow-auto border-t border-line bg-surface p-3 lg:max-h-none lg:w-96 lg:border-t-0 lg:border-l"
        >
          <h2 className="mb-2 font-semibold">
            {selected.kind} <span className="font-normal text-muted">{exactTime(selected.at)}</span>
          </h2>
          <pre className="inert whitespace-pre-wrap">{JSON.stringify(selected.detail, null, 2).slice(0, 20_000)}</pre>
        </aside>
      )}
    </div>
  )
}

interface RowProps {
  event: JobEvent
  names: Names
  top: number
  current: boolean
  onSelect: () => void
}

function EventRow({ event, names, top, current, onSelect }: RowProps) {
  const { subject, text, state } = eventWords(event, names)
  return (
    <div role="listitem" className="absolute inset-x-0" style={{ transform: `translateY(${top}px)`, height: ROW_HEIGHT }}>
      <button
        type="button"
        aria-pressed={current}
        onClick={onSelect}
        className="flex h-full w-full items-center gap-3 border-b border-line px-3 text-left whitespace-nowrap hover:bg-hover aria-pressed:bg-accent-soft sm:px-4"
      >
        <span className="w-12 shrink-0 text-right text-muted">{event.seq}</span>
        <time className="shrink-0 text-muted" title={exactTime(event.at)}>
          {clockTimeMs(event.at)}
        </time>
        <StateIcon state={state} />
        <JobText className="w-24 shrink-0 truncate font-medium sm:w-44">{subject}</JobText>
        <JobText className="min-w-0 truncate">{text}</JobText>
      </button>
    </div>
  )
}
