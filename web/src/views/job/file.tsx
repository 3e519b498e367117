/** The job file, and what each step's policy came to with where each value is from. */
import { useQuery } from '@tanstack/react-query'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useMemo, useRef, type ReactNode } from 'react'
import { Failure, IconButton, JobText, Loading, TextInput } from '@/components/ui'
import { count, duration, plural, words } from '@/lib/format'
import { writtenValue } from '@/lib/policy'
import type { Plan, PlanStep, PolicyValue } from '@/services/model'
import { planQuery } from '@/services/queries'
import { useJobId, useJobSearch } from './use-job'

const MOST_LINES = 5_000
/** Lines that come into sight together. */
const TOGETHER = 100
const LINE_HEIGHT = 18
const CARD_HEIGHT = 300
/** Of so many steps one is found by its looks. */
const FEW_STEPS = 8
const SCROLLER = 'max-h-[75dvh] min-h-0 overflow-auto lg:max-h-none'

export default function File() {
  const id = useJobId()
  const plan = useQuery(planQuery(id))
  if (plan.error) return <Failure error={plan.error} retry={() => void plan.refetch()} />
  if (!plan.data) return <Loading what="the file" />
  return (
    <div className="flex min-h-0 grow flex-col gap-4 overflow-auto p-3 sm:p-4 lg:min-h-80 lg:basis-0 lg:flex-row lg:overflow-hidden">
      <JobFile file={plan.data.file} />
      <Policies steps={plan.data.steps} />
    </div>
  )
}

interface PartProps {
  title: string
  note?: string
  copied: { label: string; text: () => string } | null
  children: ReactNode
}

function Part({ title, note, copied, children }: PartProps) {
  return (
    <section className="flex min-w-0 shrink-0 flex-col gap-2 lg:min-h-0 lg:shrink lg:grow lg:basis-0">
      <div className="flex min-h-8 items-center gap-2">
        <h2 className="grow text-[1.1em] font-semibold">
          {title} {note && <span className="font-normal text-muted">{note}</span>}
        </h2>
        {copied && <IconButton icon="copy" label={copied.label} onClick={() => void navigator.clipboard?.writeText(copied.text())} />}
      </div>
      {children}
    </section>
  )
}

function JobFile({ file }: { file: Plan['file'] }) {
  const note = file?.reconstructed ? 'put together again from the plan; the text itself is not kept' : undefined
  return (
    <Part title="Job file" note={note} copied={file && { label: 'Copy the job file', text: () => file.text }}>
      {file ? <Numbered text={file.text} /> : <p className="text-muted">The text is not kept.</p>}
    </Part>
  )
}

function Numbered({ text }: { text: string }) {
  const lines = useMemo(() => text.replace(/\n$/, '').split('\n'), [text])
  const parts = Math.ceil(Math.min(lines.length, MOST_LINES) / TOGETHER)
  return (
    <pre tabIndex={0} aria-label="Job file" className={`card p-3 ${SCROLLER}`}>
      {Array.from({ length: parts }, (_, part) => (
        <Lines key={part} lines={lines.slice(part * TOGETHER, Math.min((part + 1) * TOGETHER, MOST_LINES))} before={part * TOGETHER} />
      ))}
      {lines.length > MOST_LINES && <span className="text-muted">{count(lines.length - MOST_LINES)} more lines; a copy has them</span>}
    </pre>
  )
}

/** All are in the page, for the browser's own search and selection; what is out of sight is not laid out. */
function Lines({ lines, before }: { lines: string[]; before: number }) {
  return (
    <span className="out-of-sight block" style={{ containIntrinsicBlockSize: `auto ${lines.length * LINE_HEIGHT}px` }}>
      <span className="block" style={{ counterReset: `line ${before}` }}>
        {lines.map((line, i) => (
          <JobText key={i} className="numbered-line">{`${line.slice(0, 2000)}\n`}</JobText>
        ))}
      </span>
    </span>
  )
}

function Policies({ steps }: { steps: PlanStep[] }) {
  const [search, change] = useJobSearch()
  const find = search.text ?? ''
  const texts = useMemo(() => (find === '' ? [] : steps.map(step => writtenPolicy(step).toLowerCase())), [steps, find === ''])
  const wanted = useMemo(() => {
    if (search.step) return steps.filter(step => step.name === search.step)
    return find === '' ? steps : steps.filter((_, i) => texts[i]?.includes(find.toLowerCase()))
  }, [steps, search.step, find, texts])
  const scroller = useRef<HTMLDivElement>(null)
  const virtual = useVirtualizer({
    count: wanted.length,
    getScrollElement: () => scroller.current,
    getItemKey: index => wanted[index]?.name ?? index,
    estimateSize: () => CARD_HEIGHT,
    gap: 12,
    overscan: 3,
  })
  return (
    <Part title="Effective policies" copied={{ label: 'Copy the policies', text: () => wanted.map(writtenPolicy).join('\n') }}>
      {steps.length > FEW_STEPS && (
        <div className="flex flex-wrap items-center gap-2">
          <TextInput
            type="search"
            aria-label="Find a step or a value"
            placeholder="Step, key, value or source"
            value={search.step ?? find}
            onChange={event => change({ text: event.target.value || undefined, step: undefined })}
            className="w-64"
          />
          <span className="text-muted" role="status" data-policies={wanted.length}>
            {wanted.length < steps.length ? `${count(wanted.length)} of ${plural(steps.length, 'step')}` : plural(steps.length, 'step')}
          </span>
        </div>
      )}
      <div ref={scroller} tabIndex={0} role="list" aria-label="Effective policies" className={SCROLLER}>
        <div className="relative" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map(({ index, start, key }) => {
            const step = wanted[index]
            return (
              step && (
                <div
                  key={key}
                  role="listitem"
                  data-index={index}
                  ref={virtual.measureElement}
                  className="absolute inset-x-0"
                  style={{ transform: `translateY(${start}px)` }}
                >
                  <Policy step={step} />
                </div>
              )
            )
          })}
        </div>
      </div>
    </Part>
  )
}

/** A dialect's name looks like what it is: words of the step or the job. */
const SOURCE_LOOK: Record<string, string> = {
  step: 'bg-accent-soft text-accent',
  job: 'bg-running-soft text-running',
  operator: 'bg-paused-soft text-paused',
}

function Policy({ step }: { step: PlanStep }) {
  return (
    <div className="card p-3">
      <h3 className="mb-1 flex flex-wrap items-baseline gap-x-2">
        <JobText className="font-semibold">{step.name}</JobText>
        <span className="text-muted">{writtenDelays(step)}</span>
      </h3>
      <dl className="grid grid-cols-[auto_1fr_auto] gap-x-4">
        {toldValues(step).map(([key, of]) => (
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

function toldValues(step: PlanStep): [string, PolicyValue][] {
  return Object.entries(step.policy).filter(([key, of]) => tells(key, of))
}

function writtenDelays({ delays, bindingLimit, worstCase }: PlanStep): string {
  const facts = [
    delays.length > 0 ? `waits ${delays.slice(0, 8).map(duration).join(', ')}${delays.length > 8 ? ', …' : ''}` : 'no retries',
    bindingLimit && `bound by ${words(bindingLimit)}`,
    worstCase !== null && `at most ${duration(worstCase)}`,
  ]
  return facts.filter(Boolean).join(' · ')
}

/** A card as text. */
function writtenPolicy(step: PlanStep): string {
  const values = toldValues(step).map(([key, of]) => `  ${key}: ${writtenValue(key, of.value) || 'none'} (${of.source})\n`)
  return `${step.name}: ${writtenDelays(step)}\n${values.join('')}`
}
