import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useMemo, useRef, useState } from 'react'
import { useShortcuts } from '@/app/shortcuts'
import { StateBadge } from '@/components/state'
import { Ago, Took } from '@/components/time'
import { Button, Chip, Empty, Failure, JobText, Loading } from '@/components/ui'
import { count, plural, words } from '@/lib/format'
import { useStore } from '@/lib/store'
import { heldBack, live, setPaused, showHeldBack, useLive } from '@/services/live'
import type { ActionKind, JobRow } from '@/services/model'
import { countsQuery, jobsQuery, meQuery } from '@/services/queries'
import { ActionDialog, type Intent } from './actions'
import { FilterBar, isFiltered, StateFilter, useJobFilter } from './filters'
import { SubmitDialog } from './submit'

const ROW_HEIGHT = 35
const COLUMNS =
  'grid grid-cols-[28px_118px_minmax(0,1fr)_70px] sm:grid-cols-[28px_118px_minmax(0,1.3fr)_minmax(0,1fr)_96px_84px] items-center gap-x-3 px-3 sm:px-4'

export default function Jobs() {
  useLive()
  const [filter] = useJobFilter()
  const list = useInfiniteQuery(jobsQuery(filter))
  const counts = useQuery(countsQuery())
  const me = useQuery(meQuery())
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set())
  const [intent, setIntent] = useState<Intent | null>(null)
  const [submitting, setSubmitting] = useState(false)
  const rows = useMemo(() => list.data?.pages.flatMap(page => page.rows) ?? [], [list.data])
  const maySubmit = me.data?.may.submit ?? false

  return (
    <div className="flex min-h-0 grow flex-col">
      <div className="flex flex-col gap-2 border-b border-line bg-surface px-3 py-2.5 sm:px-4">
        <h1 className="sr-only">Jobs</h1>
        <div className="flex flex-wrap items-center gap-2">
          <StateFilter counts={counts.data} />
          <span className="grow" />
          <LivePause />
          {maySubmit && (
            <Button icon="plus" onClick={() => setSubmitting(true)}>
              Submit
            </Button>
          )}
        </div>
        <FilterBar />
        {maySubmit && rows.length > 0 && (
          <ActionBar
            selected={selected}
            filtered={isFiltered(filter)}
            onSelect={setSelected}
            onAct={(action, all) => setIntent({ action, target: all ? { filter } : { ids: [...selected] } })}
          />
        )}
      </div>
      {list.error && rows.length === 0 ? (
        <Failure error={list.error} retry={() => void list.refetch()} />
      ) : list.isPending ? (
        <Loading what="jobs" />
      ) : rows.length === 0 && !list.hasNextPage ? (
        <NoJobs filtered={isFiltered(filter)} />
      ) : (
        <JobList
          rows={rows}
          more={list.hasNextPage}
          loadMore={() => !list.isFetchingNextPage && void list.fetchNextPage()}
          selected={selected}
          onSelect={setSelected}
          selectable={maySubmit}
        />
      )}
      {intent && <ActionDialog intent={intent} onClose={done => (setIntent(null), done && setSelected(new Set()))} />}
      {submitting && <SubmitDialog onClose={() => setSubmitting(false)} />}
    </div>
  )
}

function NoJobs({ filtered }: { filtered: boolean }) {
  if (filtered) return <Empty title="No job matches">Widen the filter: fewer words, another time, all states.</Empty>
  return (
    <Empty title="No jobs yet" icon="jobs">
      Submit one here, or from a terminal: <code>steadfast submit job.yaml</code>
    </Empty>
  )
}

function LivePause() {
  const { paused } = useStore(live)
  const waiting = useStore(heldBack)
  return (
    <>
      {waiting > 0 && (
        <Button look="primary" onClick={showHeldBack}>
          {Number.isFinite(waiting) ? `Show ${plural(waiting, 'change')}` : 'Show all changes'}
        </Button>
      )}
      <Button icon={paused ? 'play' : 'pause'} aria-pressed={paused} onClick={() => setPaused(!paused)}>
        {paused ? 'Live again' : 'Pause updates'}
      </Button>
    </>
  )
}

interface ActionBarProps {
  selected: ReadonlySet<string>
  filtered: boolean
  onSelect: (ids: ReadonlySet<string>) => void
  onAct: (action: ActionKind, all: boolean) => void
}

const ACTIONS: { action: ActionKind; icon: 'stop' | 'pause' | 'play' | 'retry'; label: string }[] = [
  { action: 'retry', icon: 'retry', label: 'Retry' },
  { action: 'pause', icon: 'pause', label: 'Pause' },
  { action: 'resume', icon: 'play', label: 'Resume' },
  { action: 'cancel', icon: 'stop', label: 'Cancel' },
]

function ActionBar({ selected, filtered, onSelect, onAct }: ActionBarProps) {
  if (selected.size === 0 && !filtered) return null
  const all = selected.size === 0
  return (
    <div role="toolbar" aria-label="Actions" className="flex flex-wrap items-center gap-1.5">
      <span className="mr-1 text-muted">{all ? 'All that match:' : `${count(selected.size)} selected:`}</span>
      {ACTIONS.map(({ action, icon, label }) => (
        <Button key={action} icon={icon} onClick={() => onAct(action, all)}>
          {label}
        </Button>
      ))}
      {!all && (
        <Button look="quiet" onClick={() => onSelect(new Set())}>
          Select none
        </Button>
      )}
    </div>
  )
}

interface ListProps {
  rows: JobRow[]
  more: boolean
  loadMore: () => void
  selected: ReadonlySet<string>
  onSelect: (ids: ReadonlySet<string>) => void
  selectable: boolean
}

function JobList({ rows, more, loadMore, selected, onSelect, selectable }: ListProps) {
  const scroller = useRef<HTMLDivElement>(null)
  const { at } = useSearch({ from: '/jobs' })
  const navigate = useNavigate({ from: '/jobs' })
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 12,
  })
  const shown = virtual.getVirtualItems()
  const last = shown.at(-1)?.index ?? 0
  useEffect(() => {
    if (more && last >= rows.length - 40) loadMore()
  }, [more, last, rows.length, loadMore])

  const position = rows.findIndex(row => row.id === at)
  const move = (by: number) => {
    const next = Math.min(rows.length - 1, Math.max(0, position + by))
    void navigate({ search: before => ({ ...before, at: rows[next]?.id }), replace: true })
    virtual.scrollToIndex(next)
  }
  const toggle = (id: string) => {
    const next = new Set(selected)
    if (!next.delete(id)) next.add(id)
    onSelect(next)
  }
  useShortcuts('Jobs', [
    { keys: 'j', about: 'Next job', run: () => move(1) },
    { keys: 'k', about: 'Previous job', run: () => move(-1) },
    { keys: 'Enter', about: 'Open the job', run: () => at && void navigate({ to: '/jobs/$id', params: { id: at } }) },
    ...(selectable ? [{ keys: 'x', about: 'Select the job', run: () => at && toggle(at) }] : []),
    { keys: 'p', about: 'Pause updates, or go on', run: () => setPaused(!live.get().paused) },
    { keys: 'Escape', about: 'Select none', run: () => onSelect(new Set()) },
  ])

  return (
    <div role="table" aria-label="Jobs" aria-rowcount={more ? -1 : rows.length} className="flex min-h-0 grow basis-80 flex-col">
      <div role="rowgroup">
        <div role="row" className={`${COLUMNS} h-8 border-b border-line text-[0.92em] text-muted`}>
          <span role="columnheader">
            <span className="sr-only">Selected</span>
          </span>
          <span role="columnheader">State</span>
          <span role="columnheader">Job</span>
          <span role="columnheader" className="hidden sm:block">
            Why it ended, labels
          </span>
          <span role="columnheader" className="text-right">
            Submitted
          </span>
          <span role="columnheader" className="hidden text-right sm:block">
            Took
          </span>
        </div>
      </div>
      <div
        ref={scroller}
        role="rowgroup"
        tabIndex={0}
        aria-label="Jobs, the newest first"
        className="relative min-h-0 grow basis-0 overflow-auto bg-surface"
      >
        <div style={{ height: virtual.getTotalSize() }} className="relative">
          {shown.map(({ index, start }) => {
            const row = rows[index]
            return (
              row && (
                <Row
                  key={row.id}
                  row={row}
                  top={start}
                  current={row.id === at}
                  selected={selected.has(row.id)}
                  onToggle={selectable ? () => toggle(row.id) : undefined}
                />
              )
            )
          })}
        </div>
      </div>
    </div>
  )
}

interface RowProps {
  row: JobRow
  top: number
  current: boolean
  selected: boolean
  onToggle?: () => void
}

function Row({ row, top, current, selected, onToggle }: RowProps) {
  return (
    <div
      role="row"
      data-job={row.id}
      aria-selected={current}
      style={{ transform: `translateY(${top}px)`, height: ROW_HEIGHT }}
      className={`absolute inset-x-0 border-b border-line ${COLUMNS} ${selected ? 'bg-accent-soft' : 'hover:bg-hover'} ${current ? 'shadow-[inset_3px_0_0_var(--accent)]' : ''}`}
    >
      <span role="cell">
        {onToggle && (
          <input
            type="checkbox"
            checked={selected}
            onChange={onToggle}
            aria-label={`Select ${row.name}`}
            className="block size-4 accent-(--accent)"
          />
        )}
      </span>
      <span role="cell">
        <StateBadge state={row.state} />
      </span>
      <span role="cell" className="flex min-w-0 items-baseline gap-2">
        <Link to="/jobs/$id" params={{ id: row.id }} className="truncate font-medium hover:text-accent hover:underline">
          <JobText>{row.name}</JobText>
        </Link>
        <code className="hidden shrink-0 text-[0.85em] text-muted md:inline" title={row.id}>
          {row.id.slice(-8)}
        </code>
        {row.retriedFrom && (
          <span className="shrink-0 text-[0.9em] text-muted" title={`a retry of ${row.retriedFrom}`}>
            ↻
          </span>
        )}
      </span>
      <span role="cell" className="hidden min-w-0 items-center gap-1.5 overflow-hidden whitespace-nowrap sm:flex">
        {row.reason && <span className="truncate text-muted">{words(row.reason)}</span>}
        {Object.entries(row.labels)
          .slice(0, 3)
          .map(([key, value]) => (
            <Chip key={key}>{`${key}=${value}`}</Chip>
          ))}
      </span>
      <span role="cell" className="text-right text-muted">
        <Ago at={row.submittedAt} />
      </span>
      <span role="cell" className="hidden text-right text-muted sm:block">
        <Took from={row.submittedAt} to={row.finishedAt} />
      </span>
    </div>
  )
}
