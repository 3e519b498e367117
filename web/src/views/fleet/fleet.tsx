/** The workers, and why nobody takes what waits. */
import { useMutation, useQueries, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useRef, useState } from 'react'
import { useShortcuts } from '@/app/shortcuts'
import { Dialog } from '@/components/dialog'
import { StateBadge } from '@/components/state'
import { Ago, Countdown } from '@/components/time'
import { Button, Chip, Empty, Failure, JobText, Loading, Sentence, TextInput } from '@/components/ui'
import { bytes, plural } from '@/lib/format'
import { drain } from '@/services/fleet'
import { useLive } from '@/services/live'
import type { Worker } from '@/services/model'
import { explanationQuery, meQuery, queries, workersQuery } from '@/services/queries'
import { fetchJobs } from '@/services/jobs'

export default function Fleet() {
  useLive()
  const workers = useQuery(workersQuery())
  const search = useSearch({ from: '/fleet' })
  const navigate = useNavigate({ from: '/fleet' })
  const field = useRef<HTMLInputElement>(null)
  const [asked, setAsked] = useState<{ worker: Worker; back: boolean } | null>(null)
  const wanted = (search.text ?? '').toLowerCase()
  const shown = (workers.data ?? []).filter(worker => matches(worker, wanted))
  const position = shown.findIndex(worker => worker.name === search.at)
  const move = (by: number) => {
    const next = shown[Math.min(shown.length - 1, Math.max(0, position + by))]?.name
    void navigate({ search: before => ({ ...before, at: next }), replace: true })
    document.querySelector(`[data-worker="${CSS.escape(next ?? '')}"]`)?.scrollIntoView({ block: 'nearest' })
  }
  useShortcuts('Fleet', [
    { keys: '/', about: 'Search', run: () => field.current?.focus() },
    { keys: 'j', about: 'Next worker', run: () => move(1) },
    { keys: 'k', about: 'Previous worker', run: () => move(-1) },
  ])
  if (workers.error && !workers.data) return <Failure error={workers.error} retry={() => void workers.refetch()} />
  if (!workers.data) return <Loading what="workers" />
  return (
    <div className="flex min-h-0 grow flex-col gap-4 overflow-auto p-3 sm:p-4">
      <div className="flex flex-wrap items-center gap-3">
        <h1 className="text-[1.35em] font-semibold tracking-tight">Fleet</h1>
        <span className="text-muted">{summary(workers.data)}</span>
        <span className="grow" />
        <TextInput
          ref={field}
          type="search"
          aria-label="Search workers"
          placeholder="Name, datacenter, label"
          value={search.text ?? ''}
          onChange={event => void navigate({ search: before => ({ ...before, text: event.target.value || undefined }), replace: true })}
          className="w-full sm:w-56"
        />
      </div>
      {workers.data.length === 0 ? (
        <div className="card">
          <Empty title="No worker is connected" icon="fleet">
            Nothing runs without one. Start it where the work is to be done: <code>steadfast worker --server {location.origin}</code>
          </Empty>
        </div>
      ) : (
        <ul className="grid gap-3 md:grid-cols-2 xl:grid-cols-3">
          {shown.map(worker => (
            <WorkerCard
              key={worker.name}
              worker={worker}
              current={worker.name === search.at}
              onDrain={back => setAsked({ worker, back })}
            />
          ))}
        </ul>
      )}
      <NobodyTakes />
      {asked && <DrainDialog {...asked} onClose={() => setAsked(null)} />}
    </div>
  )
}

function matches(worker: Worker, wanted: string): boolean {
  const texts = [
    worker.name,
    worker.datacenter ?? '',
    worker.state,
    ...Object.entries(worker.labels).map(pair => pair.join('=')),
    ...worker.functions,
  ]
  return texts.some(text => text.toLowerCase().includes(wanted))
}

function summary(workers: Worker[]): string {
  const busy = workers.reduce((sum, worker) => sum + worker.busy, 0)
  const slots = workers.reduce((sum, worker) => sum + worker.credits, 0)
  return `${plural(workers.length, 'worker')}, ${busy} of ${plural(slots, 'slot')} in use`
}

function WorkerCard({ worker, current, onDrain }: { worker: Worker; current: boolean; onDrain: (back: boolean) => void }) {
  const me = useQuery(meQuery())
  const drains = worker.state === 'draining'
  return (
    <li
      data-worker={worker.name}
      aria-current={current}
      className={`card flex flex-col gap-2.5 p-3 ${current ? 'border-accent ring-1 ring-(--accent)' : ''}`}
    >
      <div className="flex items-center gap-2">
        <JobText className="min-w-0 grow truncate font-semibold">{worker.name}</JobText>
        {worker.datacenter && <Chip>{worker.datacenter}</Chip>}
        <StateBadge state={worker.state} />
      </div>
      {worker.why && (
        <p className="text-muted">
          <JobText>{worker.why}</JobText>
        </p>
      )}
      <Slots worker={worker} />
      <Lease worker={worker} />
      <div className="grid grid-cols-2 gap-x-4 text-muted">
        {worker.cpu !== null && <Load name="cpu" used={worker.cpuUsed} of={worker.cpu} text={`${worker.cpuUsed} of ${worker.cpu}`} />}
        {worker.memory !== null && (
          <Load name="memory" used={worker.memoryUsed} of={worker.memory} text={`${bytes(worker.memoryUsed)} of ${bytes(worker.memory)}`} />
        )}
      </div>
      <div className="flex flex-wrap items-center gap-1">
        {Object.entries(worker.labels).map(([key, value]) => (
          <Chip key={key}>{`${key}=${value}`}</Chip>
        ))}
        {worker.functions.map(name => (
          <Chip key={name} title="a function that it has">{`${name}()`}</Chip>
        ))}
        <span className="grow" />
        {me.data?.may.admin && <Button onClick={() => onDrain(drains)}>{drains ? 'Take back' : 'Drain'}</Button>}
      </div>
    </li>
  )
}

/** Until when the server believes in it: each answered beat begins it anew. */
function Lease({ worker }: { worker: Worker }) {
  const away = worker.state === 'away'
  return (
    <p className={away ? 'font-medium text-waiting' : 'text-muted'} data-lease>
      {away ? 'Silent: what it runs is given to others in ' : 'Lease: '}
      <Countdown to={worker.lostAt} late={away ? 'a moment' : 'over'} />
      {away ? '' : ' left, and longer with every beat'}
    </p>
  )
}

const MOST_DRAWN = 64

/** Each slot a square: in use, free, or another server's. */
function Slots({ worker }: { worker: Worker }) {
  const text = `${worker.busy} of ${worker.credits} in use${worker.credits < worker.slots ? `, ${worker.slots} in all` : ''}`
  return (
    <div className="flex items-center gap-2">
      <span role="img" aria-label={text} className="flex grow flex-wrap gap-0.5">
        {Array.from({ length: Math.min(worker.slots, MOST_DRAWN) }, (_, i) => (
          <span
            key={i}
            className={`size-3 rounded-[2px] ${i < worker.busy ? 'bg-running-solid' : i < worker.credits ? 'border border-line-strong' : 'bg-idle-soft'}`}
          />
        ))}
      </span>
      <span className="text-muted">{text}</span>
    </div>
  )
}

function Load({ name, used, of, text }: { name: string; used: number; of: number; text: string }) {
  return (
    <span className="flex flex-col gap-0.5" title="what the attempts it runs have asked for">
      <span className="flex justify-between gap-2">
        <span>{name}</span>
        <span className="whitespace-nowrap">{text}</span>
      </span>
      <span className="h-1.5 overflow-hidden rounded-full bg-idle-soft">
        <span className="block h-full bg-running-solid" style={{ width: `${Math.min(100, (used / Math.max(of, 1e-9)) * 100)}%` }} />
      </span>
    </span>
  )
}

function DrainDialog({ worker, back, onClose }: { worker: Worker; back: boolean; onClose: () => void }) {
  const act = useMutation({
    mutationFn: () => drain(worker.name, back),
    onSuccess: () => (void queries.invalidateQueries({ queryKey: ['workers'] }), onClose()),
  })
  return (
    <Dialog
      title={back ? `Take ${worker.name} back` : `Drain ${worker.name}`}
      open
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Leave as it is</Button>
          <Button look="primary" disabled={act.isPending} onClick={() => act.mutate()}>
            {back ? 'Take back' : 'Drain'}
          </Button>
        </>
      }
    >
      <p>
        {back
          ? 'It gets new work again, as soon as it has heard.'
          : worker.busy > 0
            ? `It gets nothing new, finishes the ${plural(worker.busy, 'attempt')} it runs, and its process ends. Nothing is lost.`
            : 'It gets nothing new, and as it runs nothing its process ends at once.'}
      </p>
      {act.error && <Failure error={act.error} />}
    </Dialog>
  )
}

const MOST_ASKED = 8
/** Jobs in which something may wait for a worker. */
const OPEN = { state: ['pending' as const, 'running' as const] }

function NobodyTakes() {
  const open = useQuery({ queryKey: ['jobs', 'list', 'open'], queryFn: () => fetchJobs(OPEN, undefined), refetchInterval: 10_000 })
  const asked = (open.data?.rows ?? []).slice(0, MOST_ASKED)
  const explained = useQueries({ queries: asked.map(job => explanationQuery(job.id)) })
  const waiting = asked.flatMap((job, i) =>
    (explained[i]?.data?.waiting ?? []).filter(one => one.because !== null).map(one => ({ job, one })),
  )
  return (
    <section className="card">
      <h2 className="border-b border-line px-3 py-2 font-semibold">Why is nobody taking this?</h2>
      {waiting.length === 0 ? (
        <p className="px-3 py-4 text-muted">
          Nothing waits for a worker that could not have one
          {asked.length === MOST_ASKED ? `, among the ${MOST_ASKED} newest open jobs` : ''}.
        </p>
      ) : (
        <ul>
          {waiting.map(({ job, one }) => (
            <li
              key={`${job.id}/${one.name}`}
              className="flex flex-wrap items-baseline gap-x-3 border-b border-line px-3 py-2 last:border-0"
            >
              <Link to="/jobs/$id" params={{ id: job.id }} search={{ tab: 'why' }} className="font-medium text-accent underline">
                <JobText>{job.name}</JobText>
              </Link>
              <JobText>{one.name}</JobText>
              {one.since !== null && (
                <span className="text-muted">
                  waits since <Ago at={one.since} />
                </span>
              )}
              <span className="w-full text-muted sm:w-auto">
                <Sentence>{one.because ?? ''}</Sentence>
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}
