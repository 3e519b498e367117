/** The job file, and what each step's policy came to with where each value is from. */
import { useQuery } from '@tanstack/react-query'
import { Failure, JobText, Loading } from '@/components/ui'
import { duration, words } from '@/lib/format'
import { writtenValue } from '@/lib/policy'
import type { PlanStep, PolicyValue } from '@/services/model'
import { planQuery } from '@/services/queries'
import { useJobId, useJobSearch } from './use-job'

const MOST_STEPS = 100

export default function File() {
  const id = useJobId()
  const [search] = useJobSearch()
  const plan = useQuery(planQuery(id))
  if (plan.error) return <Failure error={plan.error} retry={() => void plan.refetch()} />
  if (!plan.data) return <Loading what="the file" />
  const { steps, file } = plan.data
  const wanted = search.step ? steps.filter(step => step.name === search.step) : steps
  return (
    <div className="grid min-h-0 grow content-start gap-4 overflow-auto p-3 sm:p-4 lg:grid-cols-2">
      <section className="min-w-0">
        <h2 className="mb-2 text-[1.1em] font-semibold">
          Job file{' '}
          {file?.reconstructed && (
            <span className="font-normal text-muted">put together again from the plan; the text itself is not kept</span>
          )}
        </h2>
        {file ? <Numbered text={file.text} /> : <p className="text-muted">The text is not kept.</p>}
      </section>
      <section className="flex min-w-0 flex-col gap-3">
        <h2 className="text-[1.1em] font-semibold">Effective policies</h2>
        {wanted.slice(0, MOST_STEPS).map(step => (
          <Policy key={step.name} step={step} />
        ))}
        {wanted.length > MOST_STEPS && (
          <p className="text-muted">and of {wanted.length - MOST_STEPS} more steps; choose one in the graph</p>
        )}
      </section>
    </div>
  )
}

function Numbered({ text }: { text: string }) {
  const lines = text.replace(/\n$/, '').split('\n')
  const shown = lines.slice(0, 5000)
  return (
    <pre tabIndex={0} aria-label="Job file" className="card max-h-[75dvh] overflow-auto p-3">
      {shown.map((line, i) => (
        <span key={i} className="flex">
          <span className="mr-3 w-8 shrink-0 text-right text-muted select-none" aria-hidden>
            {i + 1}
          </span>
          <JobText className="whitespace-pre-wrap">{line.slice(0, 2000) || ' '}</JobText>
        </span>
      ))}
      {lines.length > shown.length && <span className="text-muted">{lines.length - shown.length} more lines</span>}
    </pre>
  )
}

/** A dialect's name looks like what it is: words of the step or the job. */
const SOURCE_LOOK: Record<string, string> = {
  step: 'bg-accent-soft text-accent',
  job: 'bg-running-soft text-running',
  operator: 'bg-paused-soft text-paused',
}

function Policy({ step }: { step: PlanStep }) {
  const entries = Object.entries(step.policy)
  const told = entries.filter(([key, of]) => tells(key, of))
  return (
    <div className="card p-3">
      <h3 className="mb-1 flex flex-wrap items-baseline gap-x-2">
        <JobText className="font-semibold">{step.name}</JobText>
        <span className="text-muted">
          {step.delays.length > 0
            ? `waits ${step.delays.slice(0, 8).map(duration).join(', ')}${step.delays.length > 8 ? ', …' : ''}`
            : 'no retries'}
          {step.bindingLimit && ` · bound by ${words(step.bindingLimit)}`}
          {step.worstCase !== null && ` · at most ${duration(step.worstCase)}`}
        </span>
      </h3>
      <dl className="grid grid-cols-[auto_1fr_auto] gap-x-4">
        {told.map(([key, of]) => (
          <div key={key} className="contents">
            <dt className="text-muted">{key}</dt>
            <dd>
              <code>
                <JobText>{writtenValue(key, of.value) || 'none'}</JobText>
              </code>
            </dd>
            <dd className="text-right">
              <span
                className={`rounded px-1.5 text-[0.9em] ${SOURCE_LOOK[of.source] ?? (of.source === 'default' ? 'text-muted' : 'bg-accent-soft text-accent')}`}
              >
                {of.source}
              </span>
            </dd>
          </div>
        ))}
      </dl>
    </div>
  )
}

/** What is not set and not used says nothing. */
function tells(key: string, of: PolicyValue): boolean {
  return of.source !== 'default' || (of.value !== null && writtenValue(key, of.value) !== '')
}
