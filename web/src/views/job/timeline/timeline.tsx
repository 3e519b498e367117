/** A row for each item: when it ran, how that ended, and what it waited for in between. */
import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useMemo, useRef, useState, type RefObject } from 'react'
import { useShortcuts } from '@/app/shortcuts'
import { StateIcon } from '@/components/state'
import { Countdown, useNow } from '@/components/time'
import { Empty, Failure, IconButton, JobText, Loading, Switch } from '@/components/ui'
import { count } from '@/lib/format'
import { buildScale, type TimeScale } from '@/lib/time-scale'
import { ENDED, type Job, type Plan } from '@/services/model'
import { attemptsQuery, jobQuery, planQuery } from '@/services/queries'
import { rowsOfAttempts, withPauses, type Band, type Row } from '@/services/timeline'
import { useTimelineFold } from '@/services/use-timeline'
import { itemLabel, useJobId, useJobSearch } from '../use-job'
import { Axis, Legend, Patterns, pixel, RowBlocks, ROW_HEIGHT, describe, type Mark, type Window } from './drawing'
import { useGestures, useViewRange } from './view-range'

export default function TimelineTab() {
  const id = useJobId()
  const job = useQuery(jobQuery(id))
  const plan = useQuery(planQuery(id))
  const folded = useTimelineFold(id)
  const error = plan.error ?? folded.error
  if (error) return <Failure error={error} />
  if (!job.data || !plan.data || !folded.data) return <Loading what="the timeline" />
  if (folded.data.tooLong) return <TimelineOfAttempts job={job.data} plan={plan.data} pauses={folded.data.fold.pauses} />
  const rows = [...folded.data.fold.rows.values()].sort(
    (a, b) => a.run - b.run || a.step - b.step || a.role.localeCompare(b.role) || a.index - b.index,
  )
  if (rows.length === 0)
    return (
      <Empty title="Nothing has run yet" icon="pending">
        Attempts are drawn here as soon as a worker takes the first one. Why none does is in the tab Why.
      </Empty>
    )
  return <Timeline job={job.data} plan={plan.data} rows={rows} pauses={folded.data.fold.pauses} downtimes={folded.data.fold.downtimes} />
}

/** Of a log too long to read: items in the order they began, and more as one scrolls. */
function TimelineOfAttempts({ job, plan, pauses }: { job: Job; plan: Plan; pauses: Band[] }) {
  const pages = useInfiniteQuery(attemptsQuery(job.id, plan))
  const rows = useMemo(() => rowsOfAttempts(pages.data?.pages.flatMap(page => page.rows) ?? []), [pages.data])
  if (pages.error) return <Failure error={pages.error} />
  if (pages.isPending) return <Loading what="attempts" />
  const more = pages.hasNextPage && !pages.isFetchingNextPage ? () => void pages.fetchNextPage() : undefined
  return (
    <Timeline
      job={job}
      plan={plan}
      rows={rows}
      pauses={pauses}
      downtimes={[]}
      loadMore={more}
      upTo={rows.reduce((last, row) => Math.max(last, row.spans.at(-1)?.to ?? 0), 0)}
    >
      <span className="text-muted">
        the first {count(rows.length)} items to begin; backoff and queueing are drawn alike in a job this large
      </span>
    </Timeline>
  )
}

interface Props {
  job: Job
  plan: Plan
  rows: Row[]
  pauses: Band[]
  downtimes: Band[]
  loadMore?: () => void
  /** Only the time up to here is shown, because the rows end there. */
  upTo?: number
  children?: React.ReactNode
}

function Timeline({ job, plan, rows, pauses, downtimes, loadMore, upTo, children }: Props) {
  const [search, change] = useJobSearch()
  const tick = useNow()
  const over = upTo !== undefined || (ENDED.has(job.state) && job.runs.every(run => ENDED.has(run.state)))
  const lastAt = upTo ?? rows.reduce((last, row) => Math.max(last, row.spans.at(-1)?.to ?? 0), job.finishedAt ?? 0)
  const now = over ? lastAt : tick
  const scroller = useRef<HTMLDivElement>(null)
  const width = useWidth(scroller)
  const labelWidth = width < 640 ? 138 : 236
  const scale = useMemo(() => fullScale(job, rows, now, over, !search.idle), [job, rows, now, over, search.idle])
  const range = useViewRange(scale)
  useGestures(scroller, labelWidth, range)
  const view: Window = { scale, start: range.start, end: range.end, width: Math.max(80, width - labelWidth) }
  const marks = marksOf(job, over ? null : now)
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 10,
  })
  const shown = virtual.getVirtualItems()
  const last = shown.at(-1)?.index ?? 0
  useEffect(() => {
    if (loadMore && last >= rows.length - 20) loadMore()
  }, [loadMore, last, rows.length])
  const position = rows.findIndex(row => row.key === search.item)
  const selected = rows[position]
  const move = (by: number) => {
    const next = Math.min(rows.length - 1, Math.max(0, position + by))
    change({ item: rows[next]?.key })
    virtual.scrollToIndex(next)
  }
  useShortcuts('Timeline', [
    { keys: 'j', about: 'Next item', run: () => move(1) },
    { keys: 'k', about: 'Previous item', run: () => move(-1) },
    { keys: '+', about: 'Zoom in', run: () => range.zoom(1 / 1.5) },
    { keys: '-', about: 'Zoom out', run: () => range.zoom(1.5) },
    { keys: 'h', about: 'Earlier', run: () => range.pan(-0.2) },
    { keys: 'l', about: 'Later', run: () => range.pan(0.2) },
    { keys: 'f', about: 'Show all', run: range.reset },
    { keys: 'Escape', about: 'Close the item', run: () => change({ item: undefined }) },
  ])
  const nameOf = (row: Row) =>
    itemLabel({
      datacenter: plan.datacenters[row.run],
      step: plan.steps[row.step]?.name ?? '',
      role: row.role,
      index: row.index,
      fanOut: plan.steps[row.step]?.fanOut,
    })
  return (
    <div className="flex min-h-[360px] grow flex-col">
      <Patterns />
      <div className="flex flex-wrap items-center gap-x-4 gap-y-1 border-b border-line px-3 py-1.5 sm:px-4">
        <Legend />
        <span className="grow" />
        {children}
        <Switch on={!search.idle} onChange={on => change({ idle: on ? undefined : true })}>
          shorten idle time
        </Switch>
        <span className="flex">
          <IconButton icon="minus" label="Zoom out" onClick={() => range.zoom(1.5)} />
          <IconButton icon="plus" label="Zoom in" onClick={() => range.zoom(1 / 1.5)} />
          <IconButton icon="fit" label="Show all" disabled={!range.zoomed} onClick={range.reset} />
        </span>
      </div>
      <div
        ref={scroller}
        tabIndex={0}
        role="region"
        aria-label="Timeline"
        className="relative min-h-0 grow basis-0 overflow-x-hidden overflow-y-auto bg-surface select-none"
      >
        <div className="sticky top-0 z-10 flex border-b border-line bg-surface">
          <span className="shrink-0" style={{ width: labelWidth }} />
          <Axis view={view} marks={marks} />
        </div>
        <div className="relative" style={{ height: virtual.getTotalSize() }} data-timeline-rows={rows.length}>
          <Bands view={view} left={labelWidth} bands={pauses} now={now} look="bg-paused-soft" />
          <Bands view={view} left={labelWidth} bands={downtimes} now={now} look="bg-lost-soft" />
          <Lines view={view} left={labelWidth} marks={marks} />
          {shown.map(({ index, start }) => {
            const row = rows[index]
            if (!row) return null
            return (
              <button
                key={row.key}
                type="button"
                data-row={row.key}
                aria-pressed={row.key === search.item}
                onClick={() => change({ item: row.key === search.item ? undefined : row.key })}
                className="absolute inset-x-0 flex border-b border-line text-left hover:bg-hover aria-pressed:bg-accent-soft"
                style={{ transform: `translateY(${start}px)`, height: ROW_HEIGHT }}
              >
                <span className="flex shrink-0 items-center gap-1.5 overflow-hidden pr-2 pl-3 sm:pl-4" style={{ width: labelWidth }}>
                  <StateIcon state={row.state} size={12} label={row.state} />
                  <JobText className="min-w-0 grow truncate">{nameOf(row)}</JobText>
                  {row.retryAt !== null && row.state === 'backing_off' && (
                    <span className="text-[0.92em] font-semibold text-waiting">
                      <Countdown to={row.retryAt} />
                    </span>
                  )}
                </span>
                <RowBlocks spans={withPauses(row.spans, pauses, now)} view={view} now={now} retryAt={row.retryAt} />
              </button>
            )
          })}
        </div>
      </div>
      {selected && <Details row={selected} name={nameOf(selected)} pauses={pauses} now={now} onClose={() => change({ item: undefined })} />}
    </div>
  )
}

/** From the job's beginning to its end, or to the last retry that is due. */
function fullScale(job: Job, rows: Row[], now: number, over: boolean, compress: boolean): TimeScale {
  const from = rows.reduce((first, row) => Math.min(first, row.spans[0]?.from ?? first), job.submittedAt)
  const due = rows.reduce((latest, row) => Math.max(latest, row.retryAt ?? 0), 0)
  const end = over ? now : Math.max(now, due)
  return buildScale(rows, from, end + (end - from) * 0.02, now, compress)
}

/** Now, and of best effort the deadline and the job's end: what a run reports after that is late. */
function marksOf(job: Job, now: number | null): Mark[] {
  const marks: (Mark | false)[] = [
    now !== null && { at: now, label: 'now', color: 'var(--accent)' },
    job.bestEffort?.deadlineAt != null && { at: job.bestEffort.deadlineAt, label: 'deadline', color: 'var(--failed-solid)' },
    job.bestEffort !== null && job.finishedAt !== null && { at: job.finishedAt, label: 'job ended', color: 'var(--succeeded-solid)' },
  ]
  return marks.filter(mark => mark !== false)
}

/** Times in which the job was paused, or the server was down, behind all rows. */
function Bands({ view, left, bands, now, look }: { view: Window; left: number; bands: Band[]; now: number; look: string }) {
  return bands.map(({ from, to }) => {
    const start = Math.max(0, pixel(view, from))
    const width = Math.min(view.width, pixel(view, to ?? now)) - start
    if (width <= 0) return null
    return (
      <span
        key={from}
        data-band={look}
        className={`pointer-events-none absolute inset-y-0 ${look} opacity-60`}
        style={{ left: left + start, width }}
      />
    )
  })
}

function Lines({ view, left, marks }: { view: Window; left: number; marks: Mark[] }) {
  return marks.map(({ at, label, color }) => {
    const x = pixel(view, at)
    if (x < 0 || x > view.width) return null
    return (
      <span
        key={label}
        data-line={label}
        className="pointer-events-none absolute inset-y-0 z-5 w-0.5"
        style={{ left: left + x, background: color }}
      />
    )
  })
}

function Details({ row, name, pauses, now, onClose }: { row: Row; name: string; pauses: Band[]; now: number; onClose: () => void }) {
  const [, change] = useJobSearch()
  return (
    <section aria-label={name} className="max-h-56 shrink-0 overflow-auto border-t border-line bg-surface px-3 py-2 sm:px-4">
      <div className="flex items-center gap-2">
        <h2 className="font-semibold">
          <JobText>{name}</JobText>
        </h2>
        <button type="button" className="text-accent underline" onClick={() => change({ tab: 'why', item: name })}>
          why
        </button>
        <span className="grow" />
        <IconButton icon="close" label="Close the item" onClick={onClose} />
      </div>
      <ol className="flex flex-col gap-0.5 text-muted">
        {withPauses(row.spans, pauses, now)
          .slice(-100)
          .map((span, i) => (
            <li key={i}>
              <JobText>{describe(span, now).replaceAll('\n', ' · ')}</JobText>
            </li>
          ))}
      </ol>
    </section>
  )
}

function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(900)
  useEffect(() => {
    if (!element.current) return
    const observer = new ResizeObserver(([entry]) => entry && setWidth(entry.contentRect.width))
    observer.observe(element.current)
    return () => observer.disconnect()
  }, [element])
  return width
}
