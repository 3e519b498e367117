import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { SpentBar } from '@/components/bars'
import type { IconName } from '@/components/icons'
import { StateBadge, StateIcon } from '@/components/state'
import { Ago, Countdown, Took } from '@/components/time'
import { Button, IconButton, JobText, Sentence } from '@/components/ui'
import { words } from '@/lib/format'
import { ENDED, type ActionKind, type Job } from '@/services/model'
import { explanationQuery, meQuery } from '@/services/queries'

const OFFERED: { action: ActionKind; icon: IconName; label: string; when: (job: Job) => boolean }[] = [
  { action: 'pause', icon: 'pause', label: 'Pause', when: job => job.state === 'running' || job.state === 'pending' },
  { action: 'resume', icon: 'play', label: 'Resume', when: job => job.state === 'paused' },
  { action: 'retry', icon: 'retry', label: 'Retry', when: job => ENDED.has(job.state) && job.state !== 'succeeded' },
  { action: 'cancel', icon: 'stop', label: 'Cancel', when: job => !ENDED.has(job.state) || job.runs.some(run => !ENDED.has(run.state)) },
]

export function JobHeader({ job, onAct }: { job: Job; onAct: (action: ActionKind) => void }) {
  const me = useQuery(meQuery())
  const explanation = useQuery(explanationQuery(job.id))
  return (
    <header className="flex shrink-0 flex-col gap-2 bg-surface px-3 pt-3 pb-2 sm:px-4">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1.5">
        <StateBadge state={job.state} large />
        <h1 className="text-[1.35em] font-semibold tracking-tight">
          <JobText>{job.name}</JobText>
        </h1>
        <span className="flex items-center text-muted">
          <code title={job.id} className="hidden sm:inline">
            {job.id}
          </code>
          <code className="sm:hidden">{job.id.slice(-8)}</code>
          <IconButton icon="copy" label="Copy the id" onClick={() => void navigator.clipboard?.writeText(job.id)} />
        </span>
        <span className="grow" />
        {me.data?.may.submit &&
          OFFERED.filter(({ when }) => when(job)).map(({ action, icon, label }) => (
            <Button key={action} icon={icon} onClick={() => onAct(action)}>
              {label}
            </Button>
          ))}
      </div>
      <p className="max-w-[110ch] text-[1.05em]" data-sentence>
        <Sentence>{job.stuckBecause ?? explanation.data?.sentence ?? `${job.state} …`}</Sentence>
      </p>
      <dl className="flex flex-wrap gap-x-6 gap-y-1.5 text-muted">
        <Fact name="submitted">
          <Ago at={job.submittedAt} />
        </Fact>
        <Fact name="took">
          <Took from={job.submittedAt} to={job.finishedAt} />
        </Fact>
        {job.completion && <Fact name="completed by">{words(job.completion.reason)}</Fact>}
        <Budget job={job} />
        <Datacenters job={job} />
        {job.retriedFrom && (
          <Fact name="retry of">
            <Link to="/jobs/$id" params={{ id: job.retriedFrom }} className="text-accent underline">
              {job.retriedFrom.slice(-8)}
            </Link>
          </Fact>
        )}
        {job.requests.map(({ kind, request }) => (
          <Fact key={kind} name={`${kind} asked`}>
            <Ago at={request.at} />{' '}
            {request.by && (
              <>
                by <JobText>{request.by}</JobText>
              </>
            )}{' '}
            {request.reason && <JobText>{`“${request.reason}”`}</JobText>}
          </Fact>
        ))}
      </dl>
    </header>
  )
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="flex items-center gap-1.5">
      <dt>{name}</dt>
      <dd className="font-medium text-text">{children}</dd>
    </div>
  )
}

function Budget({ job }: { job: Job }) {
  if (!job.budget) return null
  const { used, total, ratio } = job.budget
  const of =
    total !== null ? `of ${total}` : ratio !== null ? `used, at most ${Math.round(ratio * 100)}% of the items` : 'used, without limit'
  return (
    <Fact name="retry budget">
      <span className="flex items-center gap-2">
        <span className="w-20">
          <SpentBar used={used} limit={total} label={`${used} ${of}`} />
        </span>
        {used} {of}
      </span>
    </Fact>
  )
}

/** Datacenters side by side: how each stands, how many are needed, until when. */
function Datacenters({ job }: { job: Job }) {
  const named = job.runs.filter(run => run.datacenter !== null)
  if (named.length === 0) return null
  const succeeded = named.filter(run => run.state === 'succeeded' && !run.late).length
  const effort = job.bestEffort
  return (
    <>
      <Fact name="datacenters">
        <span className="flex flex-wrap items-center gap-x-3">
          {named.map(run => (
            <span key={run.datacenter} className="flex items-center gap-1" title={run.late ? 'it ended after the job had' : undefined}>
              <StateIcon state={run.state} label={run.state} />
              <JobText>{run.datacenter ?? ''}</JobText>
              {run.late && <span className="rounded bg-waiting-soft px-1 text-[0.9em] text-waiting">late</span>}
            </span>
          ))}
        </span>
      </Fact>
      {effort && (
        <Fact name="quorum">
          {succeeded} of {effort.min} needed
        </Fact>
      )}
      {effort?.deadlineAt && job.finishedAt === null && (
        <Fact name="deadline in">
          <Countdown to={effort.deadlineAt} late="passed" />
        </Fact>
      )}
    </>
  )
}
