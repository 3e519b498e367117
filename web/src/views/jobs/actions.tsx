/** Doing something to jobs: first what it will do, then the deed. */
import { useMutation, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { Dialog } from '@/components/dialog'
import { StateIcon } from '@/components/state'
import { Button, Failure, JobText, Loading, TextInput } from '@/components/ui'
import { plural } from '@/lib/format'
import { actOnJobs, type ActionPage, type JobsAction } from '@/services/jobs'
import type { ActionKind, ActionResult } from '@/services/model'
import { describeError } from '@/services/problem'
import { queries } from '@/services/queries'

export interface Intent {
  action: ActionKind
  target: JobsAction['target']
}

const VERBS: Record<ActionKind, { title: string; button: string; will: string; done: string }> = {
  cancel: {
    title: 'Cancel',
    button: 'Cancel them',
    will: 'will be cancelled: what runs of it is ended, nothing is compensated',
    done: 'cancelled',
  },
  pause: { title: 'Pause', button: 'Pause them', will: 'will be paused: nothing new of it starts, what runs goes on', done: 'paused' },
  resume: { title: 'Resume', button: 'Resume them', will: 'will go on', done: 'resumed' },
  retry: { title: 'Retry', button: 'Retry them', will: 'will be run again as a new job that keeps what succeeded', done: 'retried' },
}

/** So many that one call does; the answer says where to go on. */
const SHOWN = 100

export function ActionDialog({ intent, onClose }: { intent: Intent; onClose: (done: boolean) => void }) {
  const [reason, setReason] = useState('')
  const [grant, setGrant] = useState('')
  // One key for all tries of one intent, so that a second click or a lost answer retries nothing twice.
  const key = useMemo(() => crypto.randomUUID(), [])
  const action: JobsAction = { ...intent, reason: reason.trim() || undefined, grant: Number(grant) || undefined, key }
  const shown = useQuery({
    queryKey: ['action', key, action.grant ?? 0],
    queryFn: () => preview(action),
    staleTime: Infinity,
    placeholderData: previous => previous,
  })
  const act = useMutation({ mutationFn: () => actOnAll(action) })
  const words = VERBS[intent.action]
  const would = shown.data?.results.filter(result => result.outcome === 'would').length ?? 0
  const close = () => {
    if (act.data) void queries.invalidateQueries()
    onClose(act.data !== undefined)
  }
  return (
    <Dialog
      title={act.data ? 'Done' : `${words.title}: what it will do`}
      open
      wide
      onClose={close}
      footer={
        act.data ? (
          <Button look="primary" onClick={close} autoFocus>
            Close
          </Button>
        ) : (
          <>
            <Button onClick={close}>Leave as it is</Button>
            <Button
              look={intent.action === 'cancel' ? 'danger' : 'primary'}
              disabled={act.isPending || shown.isPending || (would === 0 && shown.data?.next == null)}
              onClick={() => act.mutate()}
            >
              {would === 1 && shown.data?.next == null ? words.title : words.button}
            </Button>
          </>
        )
      }
    >
      {act.error && <Failure error={act.error} />}
      {act.data ? (
        <Results page={act.data} done={words.done} />
      ) : shown.error ? (
        <Failure error={shown.error} />
      ) : !shown.data ? (
        <Loading what="what it would do" />
      ) : (
        <Preview page={shown.data} will={words.will} />
      )}
      {!act.data && (
        <div className="mt-4 flex flex-wrap gap-3">
          {intent.action === 'retry' && (
            <label className="flex flex-col gap-1">
              <span className="font-medium">Grant</span>
              <TextInput
                inputMode="numeric"
                value={grant}
                onChange={event => setGrant(event.target.value.replace(/\D/g, ''))}
                placeholder="none"
                className="w-24"
              />
              <span className="max-w-56 text-muted">
                More attempts for what failed, on top of what it spent. Without: everything that failed starts anew.
              </span>
            </label>
          )}
          <label className="flex grow flex-col gap-1">
            <span className="font-medium">Reason</span>
            <TextInput
              value={reason}
              maxLength={500}
              onChange={event => setReason(event.target.value)}
              placeholder="kept in the job’s history"
            />
          </label>
        </div>
      )}
    </Dialog>
  )
}

/** Jobs that one call may name. */
const MOST_NAMED = 500

function inCalls(action: JobsAction): JobsAction[] {
  if (!('ids' in action.target)) return [action]
  const { ids } = action.target
  const starts = Array.from({ length: Math.ceil(ids.length / MOST_NAMED) }, (_, i) => i * MOST_NAMED)
  return starts.map(start => ({ ...action, target: { ids: ids.slice(start, start + MOST_NAMED) } }))
}

/** What the first call would do, and whether others follow. */
async function preview(action: JobsAction): Promise<ActionPage> {
  const [first = action, ...others] = inCalls(action)
  const page = await actOnJobs(first, true)
  return others.length > 0 ? { ...page, next: 'more' } : page
}

/** All calls and their pages, one after the other. */
async function actOnAll(action: JobsAction): Promise<ActionPage> {
  const results: ActionResult[] = []
  try {
    for (const call of inCalls(action)) {
      let cursor: string | undefined
      do {
        const page = await actOnJobs(call, false, cursor)
        results.push(...page.results)
        cursor = page.next ?? undefined
      } while (cursor !== undefined)
    }
  } catch (error) {
    if (results.length === 0) throw error
    throw new Error(`${plural(results.length, 'job')} done, then: ${describeError(error)} Sending it again is safe.`)
  }
  return { results, next: null }
}

function Preview({ page, will }: { page: ActionPage; will: string }) {
  const would = page.results.filter(result => result.outcome === 'would')
  const refused = page.results.filter(result => result.outcome !== 'would')
  return (
    <>
      <p className="mb-2">
        <strong>
          {page.next ? 'At least ' : ''}
          {plural(would.length, 'job')}
        </strong>{' '}
        {will}.{refused.length > 0 && ` ${plural(refused.length, 'job')} cannot be:`}
        {page.next && ' There are more that match; all of them are meant.'}
      </p>
      <ResultList results={[...refused, ...would]} />
    </>
  )
}

function Results({ page, done }: { page: ActionPage; done: string }) {
  const ok = page.results.filter(result => result.outcome === 'ok').length
  return (
    <>
      <p className="mb-2" role="status">
        <strong>{plural(ok, 'job')}</strong> {done}
        {page.results.length > ok && `, ${page.results.length - ok} refused`}.
      </p>
      <ResultList results={page.results} />
    </>
  )
}

function ResultList({ results }: { results: ActionResult[] }) {
  return (
    <ul className="max-h-64 overflow-auto rounded-md border border-line">
      {results.slice(0, SHOWN).map(result => (
        <li key={result.id} className="flex flex-wrap items-center gap-x-2 border-b border-line px-2 py-1 last:border-0">
          <StateIcon state={result.state} label={result.state} />
          <JobText className="font-medium">{result.name}</JobText>
          <code className="text-muted">{result.id.slice(-8)}</code>
          {result.problem && <JobText className="w-full pl-5.5 text-failed">{result.problem}</JobText>}
          {result.newId && (
            <Link to="/jobs/$id" params={{ id: result.newId }} className="ml-auto text-accent underline">
              the new job
            </Link>
          )}
        </li>
      ))}
      {results.length > SHOWN && <li className="px-2 py-1 text-muted">and {results.length - SHOWN} more</li>}
    </ul>
  )
}
