import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useRef, useState } from 'react'
import { useShortcuts } from '@/app/shortcuts'
import { StateIcon } from '@/components/state'
import { Button, Select, TextInput } from '@/components/ui'
import { shortCount, words } from '@/lib/format'
import { JOB_STATES, STOP_REASONS, type Counts, type JobFilter, type JobState } from '@/services/model'

const COMPLETION_REASONS = ['run_failed', 'timed_out', 'deadline_expired', 'min_datacenters_reached', 'all_reported']

/** The filter of the list as it stands in the address. */
export function useJobFilter(): [JobFilter, (change: Partial<JobFilter>) => void] {
  const { at: _, ...filter } = useSearch({ from: '/jobs' })
  const navigate = useNavigate({ from: '/jobs' })
  const change = (next: Partial<JobFilter>) => void navigate({ search: before => ({ ...before, ...next, at: undefined }), replace: true })
  return [filter, change]
}

export function isFiltered(filter: JobFilter): boolean {
  return Object.values(filter).some(value => value !== undefined)
}

/** Counts of all jobs by state; each is a filter. */
export function StateFilter({ counts }: { counts: Counts | undefined }) {
  const [filter, change] = useJobFilter()
  const chosen = filter.state ?? []
  const toggle = (state: JobState) => {
    const next = chosen.includes(state) ? chosen.filter(other => other !== state) : [...chosen, state]
    change({ state: next.length > 0 ? next : undefined })
  }
  const shown = JOB_STATES.filter(
    state => !['interrupted', 'stuck'].includes(state) || (counts?.[state] ?? 0) > 0 || chosen.includes(state),
  )
  return (
    <div role="group" aria-label="States" className="flex flex-wrap gap-1">
      {shown.map(state => (
        <button
          key={state}
          type="button"
          aria-pressed={chosen.includes(state)}
          onClick={() => toggle(state)}
          className="flex h-8 items-center gap-1.5 rounded-md border border-line bg-surface px-2 hover:bg-hover aria-pressed:border-accent aria-pressed:bg-accent-soft"
        >
          <StateIcon state={state} />
          <span>{words(state)}</span>
          <span className={counts?.[state] ? 'font-semibold' : 'text-muted'} data-count={state}>
            {counts ? shortCount(counts[state] ?? 0) : '–'}
          </span>
        </button>
      ))}
    </div>
  )
}

const SINCE = [
  { label: 'Any time', ms: 0 },
  { label: 'Last 15 minutes', ms: 15 * 60e3 },
  { label: 'Last hour', ms: 3600e3 },
  { label: 'Last 24 hours', ms: 86400e3 },
  { label: 'Last 7 days', ms: 7 * 86400e3 },
]

export function FilterBar() {
  const [filter, change] = useJobFilter()
  const search = useRef<HTMLInputElement>(null)
  useShortcuts('Filter', [{ keys: '/', about: 'Search', run: () => search.current?.focus() }])
  return (
    <div className="flex flex-wrap items-center gap-2">
      <Typed
        inputRef={search}
        label="Search by name or id"
        value={filter.text}
        onChange={text => change({ text })}
        className="w-full sm:w-56"
      />
      <Typed label="Label key=value" value={filter.label} onChange={label => change({ label })} className="w-44 grow sm:grow-0" />
      <Select
        aria-label="Stop reason"
        value={filter.reason ?? ''}
        onChange={event => change({ reason: event.target.value || undefined })}
        className="max-w-44"
      >
        <option value="">Any reason</option>
        {[...STOP_REASONS, ...COMPLETION_REASONS].map(reason => (
          <option key={reason} value={reason}>
            {words(reason)}
          </option>
        ))}
      </Select>
      <Select
        aria-label="Submitted"
        value={filter.since === undefined ? '0' : 'set'}
        onChange={event =>
          change({ since: event.target.value === '0' ? undefined : Date.now() - Number(event.target.value), until: undefined })
        }
      >
        {filter.since !== undefined && (
          <option value="set">Since {new Date(filter.since).toLocaleString('en-GB', { dateStyle: 'short', timeStyle: 'short' })}</option>
        )}
        {SINCE.map(({ label, ms }) => (
          <option key={ms} value={ms}>
            {label}
          </option>
        ))}
      </Select>
      {filter.name !== undefined && (
        <Button icon="close" onClick={() => change({ name: undefined })}>
          name {filter.name}
        </Button>
      )}
      {isFiltered(filter) && (
        <Button
          look="quiet"
          onClick={() =>
            change({
              state: undefined,
              name: undefined,
              label: undefined,
              text: undefined,
              reason: undefined,
              since: undefined,
              until: undefined,
            })
          }
        >
          Clear
        </Button>
      )}
    </div>
  )
}

interface TypedProps {
  label: string
  value: string | undefined
  onChange: (value: string | undefined) => void
  className?: string
  inputRef?: React.RefObject<HTMLInputElement | null>
}

/** Applies what is typed after a moment of rest. */
function Typed({ label, value, onChange, className, inputRef }: TypedProps) {
  const [typed, setTyped] = useState(value ?? '')
  useEffect(() => setTyped(value ?? ''), [value])
  useEffect(() => {
    if (typed === (value ?? '')) return
    const timer = setTimeout(() => onChange(typed === '' ? undefined : typed), 250)
    return () => clearTimeout(timer)
  })
  return (
    <TextInput
      ref={inputRef}
      type="search"
      aria-label={label}
      placeholder={label}
      value={typed}
      onChange={event => setTyped(event.target.value)}
      className={className}
    />
  )
}
