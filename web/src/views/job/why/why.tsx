/** Why each item is where it is: its accounts, its verdicts, what binds next, and what another policy would have done. */
import { useQuery } from '@tanstack/react-query'
import { useMemo } from 'react'
import { useShortcuts } from '@/app/shortcuts'
import { Icon } from '@/components/icons'
import { StateIcon } from '@/components/state'
import { Ago, Countdown, useNow } from '@/components/time'
import { Empty, Failure, JobText, Loading, Sentence } from '@/components/ui'
import { plural } from '@/lib/format'
import { changedKeys } from '@/lib/policy'
import { ENDED, type Explanation, type Verdict, type Waiting } from '@/services/model'
import { budgetQuery, explanationQuery, planQuery } from '@/services/queries'
import { askWhatIf } from '@/services/why'
import { useJobId, useJobSearch } from '../use-job'
import { accountOfLimit, AccountBars, accountsOf, standingWindow } from './accounts'
import { VerdictList } from './verdicts'
import { WhatIf } from './what-if'

interface Subject {
  name: string
  step: string
  state: string
  value: unknown
  verdicts: Verdict[]
  waiting: Waiting | null
}

/** Everything that an explanation speaks of, by item; what has not ended well comes first. */
function subjects(explanation: Explanation): Subject[] {
  const found = new Map<string, Subject>()
  for (const verdict of explanation.verdicts) {
    const { name, step, value } = verdict.item
    const subject = found.get(name) ?? { name, step, state: '', value, verdicts: [], waiting: null }
    subject.verdicts.push(verdict)
    const { decision } = verdict
    subject.state = decision.verdict === 'complete' ? 'succeeded' : decision.verdict === 'stop' ? 'failed' : 'backing_off'
    found.set(name, subject)
  }
  for (const waiting of explanation.waiting) {
    const step = waiting.item?.step ?? waiting.name.replace(/^.*\//, '')
    const subject = found.get(waiting.name) ?? {
      name: waiting.name,
      step,
      state: '',
      value: waiting.item?.value,
      verdicts: [],
      waiting: null,
    }
    subject.state = waiting.state === 'not_started' ? 'ready' : waiting.state
    subject.waiting = waiting
    found.set(waiting.name, subject)
  }
  // A retry that was due when the job ended will not be.
  const over = ENDED.has(explanation.state)
  for (const subject of found.values()) if (over && !subject.waiting && subject.state === 'backing_off') subject.state = 'cancelled'
  const rank = (state: string) =>
    ['failed', 'backing_off', 'running', 'awaiting_callback', 'ready', 'waiting', 'cancelled', 'succeeded'].indexOf(state)
  return [...found.values()].sort((a, b) => rank(a.state) - rank(b.state))
}

export default function Why() {
  const id = useJobId()
  const [search, change] = useJobSearch()
  const explanation = useQuery(explanationQuery(id))
  const plan = useQuery(planQuery(id))
  const all = useMemo(() => (explanation.data ? subjects(explanation.data) : []), [explanation.data])
  const position = Math.max(
    0,
    all.findIndex(subject => subject.name === search.item),
  )
  const subject = all[position]
  const step = plan.data?.steps.find(candidate => candidate.name === subject?.step)
  const typed = search.with ?? {}
  const changes = step ? changedKeys(step.policy, typed) : {}
  const asked = Object.keys(changes).length > 0
  const whatIf = useQuery({
    queryKey: ['job', id, 'what-if', step?.name, changes],
    queryFn: ({ signal }) => askWhatIf(id, step?.name ?? null, changes, signal),
    enabled: asked,
    placeholderData: previous => previous,
  })
  const answer = asked ? whatIf.data : undefined
  const judged = useMemo(() => (answer ? new Map(answer.verdicts.map(verdict => [verdict.seq, verdict])) : null), [answer])
  const move = (by: number) => change({ item: all[Math.min(all.length - 1, Math.max(0, position + by))]?.name, seq: undefined })
  useShortcuts('Why', [
    { keys: 'j', about: 'Next item', run: () => move(1) },
    { keys: 'k', about: 'Previous item', run: () => move(-1) },
  ])

  if (explanation.error && !explanation.data) return <Failure error={explanation.error} retry={() => void explanation.refetch()} />
  if (!explanation.data) return <Loading what="why" />
  if (!subject)
    return (
      <Empty title="There was nothing to decide" icon="succeeded">
        Every attempt succeeded at once, or none has ended yet.
      </Empty>
    )
  return (
    <div className="grid min-h-0 grow gap-3 overflow-auto p-3 sm:p-4 lg:grid-cols-[180px_minmax(0,1fr)_290px] xl:grid-cols-[250px_minmax(0,1fr)_350px] lg:overflow-hidden">
      <ItemList all={all} current={subject} leftOut={explanation.data.leftOut} onSelect={name => change({ item: name, seq: undefined })} />
      <section aria-label={subject.name} className="flex min-w-0 flex-col gap-3 lg:min-h-0 lg:overflow-auto">
        <Standing id={id} subject={subject} sentence={explanation.data.steps.find(one => one.step === subject.step)?.sentence} />
        {subject.verdicts.length > 0 && (
          <div className="card">
            <h2 className="border-b border-line px-3 py-2 font-semibold">
              {plural(subject.verdicts.length, 'decision')}, and what each moved
            </h2>
            <VerdictList verdicts={subject.verdicts} judged={judged} selected={search.seq} onSelect={seq => change({ seq })} />
          </div>
        )}
        <SharedDraws id={id} subject={subject} />
      </section>
      <div className="flex flex-col gap-3 lg:min-h-0 lg:overflow-auto">
        {step && (
          <WhatIf step={step} typed={typed} onType={next => change({ with: next })} answer={answer} error={asked ? whatIf.error : null} />
        )}
      </div>
    </div>
  )
}

interface ItemListProps {
  all: Subject[]
  current: Subject
  leftOut: number
  onSelect: (name: string) => void
}

function ItemList({ all, current, leftOut, onSelect }: ItemListProps) {
  return (
    <nav aria-label="Items" className="card flex max-h-52 flex-col overflow-auto lg:max-h-none lg:min-h-0">
      <ul>
        {all.slice(0, 500).map(subject => (
          <li key={subject.name}>
            <button
              type="button"
              aria-current={subject === current}
              onClick={() => onSelect(subject.name)}
              className="flex w-full items-center gap-2 border-b border-line px-3 py-1.5 text-left hover:bg-hover aria-[current=true]:bg-accent-soft"
            >
              <StateIcon state={subject.state} label={subject.state} />
              <JobText className="min-w-0 grow truncate font-medium">{subject.name}</JobText>
              {subject.waiting?.state === 'backing_off' && subject.waiting.until ? (
                <span className="text-waiting">
                  <Countdown to={subject.waiting.until} />
                </span>
              ) : (
                subject.verdicts.length > 0 && <span className="text-muted">{subject.verdicts.length}</span>
              )}
            </button>
          </li>
        ))}
      </ul>
      {leftOut > 0 && <p className="px-3 py-2 text-muted">{plural(leftOut, 'decision')} of others left out; stops are kept longest.</p>}
    </nav>
  )
}

/** Where the item stands now, and what ends its retries. */
function Standing({ id, subject, sentence }: { id: string; subject: Subject; sentence: string | undefined }) {
  const now = useNow()
  const { data: budget } = useQuery(budgetQuery(id))
  const { waiting } = subject
  const last = subject.verdicts.at(-1)
  const standing = last && { ...last.after }
  if (standing && waiting && budget) {
    // Others may have drawn on what is shared since the item's last verdict.
    standing.job_retries = budget.total?.used ?? standing.job_retries
    standing.step_retries = budget.perStep.find(of => of.step === subject.step)?.used ?? standing.step_retries
  }
  const limit = waiting?.binding?.limit
  return (
    <div className="card @container flex flex-col gap-2.5 p-3">
      <h2 className="flex flex-wrap items-center gap-2 text-[1.1em] font-semibold">
        <StateIcon state={subject.state} size={16} label={subject.state} />
        <JobText>{subject.name}</JobText>
        {subject.value !== undefined && <JobText className="font-normal text-muted">{JSON.stringify(subject.value).slice(0, 80)}</JobText>}
      </h2>
      {waiting ? (
        <p data-item-sentence>
          <Sentence>{waiting.sentence}</Sentence>
        </p>
      ) : (
        sentence && (
          <p data-item-sentence>
            <Sentence>{sentence}</Sentence>
          </p>
        )
      )}
      {waiting?.state === 'backing_off' && waiting.until !== null && (
        <p className="flex items-center gap-2 text-[1.25em] font-semibold text-waiting">
          <Icon name="backing_off" size={18} /> next attempt in <Countdown to={waiting.until} late="a moment" />
        </p>
      )}
      {waiting?.binding && (
        <p data-binding>
          <Icon name="goal" className="mr-1.5 inline" />
          It has left:{' '}
          <strong>
            <JobText>{waiting.binding.sentence}</JobText>
          </strong>
        </p>
      )}
      {last && standing && (
        <AccountBars
          all
          accounts={accountsOf(standing, standing, standingWindow(subject.verdicts, last, waiting ? now : null))}
          binding={limit ? accountOfLimit(limit) : undefined}
        />
      )}
    </div>
  )
}

function SharedDraws({ id, subject }: { id: string; subject: Subject }) {
  const { data } = useQuery(budgetQuery(id))
  if (!data?.total || data.draws.length === 0) return null
  const others = data.draws.filter(draw => draw.item !== subject.name).length
  return (
    <div className="card">
      <h2 className="border-b border-line px-3 py-2 font-semibold">
        Who drew on the job’s budget{' '}
        <span className="font-normal text-muted">{others === 0 ? 'only this item' : `${plural(others, 'draw')} by others`}</span>
      </h2>
      <ol className="max-h-60 overflow-auto">
        {data.draws.map(draw => (
          <li key={draw.seq} className={`flex items-baseline gap-3 px-3 py-1 ${draw.item === subject.name ? 'bg-accent-soft' : ''}`}>
            <span className="w-16 text-muted">
              <Ago at={draw.at} />
            </span>
            <JobText className="min-w-0 grow truncate">{draw.item}</JobText>
            <span className="text-muted">
              attempt {draw.attempt}, {draw.cause}
            </span>
            <span className="w-16 text-right">
              {draw.before} → <strong>{draw.after}</strong>
            </span>
          </li>
        ))}
      </ol>
      {data.leftOut > 0 && <p className="px-3 py-1 text-muted">{plural(data.leftOut, 'earlier draw')} not shown</p>}
    </div>
  )
}
