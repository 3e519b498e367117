/** Edit the policy beside the recorded history. The server judges the same outcomes anew. */
import { useId } from 'react'
import { Button, Failure, JobText, Select, TextInput } from '@/components/ui'
import { POLICY_KEYS, writtenValue, type PolicyKey } from '@/lib/policy'
import type { PlanStep, WhatIfAnswer } from '@/services/model'
import { Problem } from '@/services/problem'

interface Props {
  step: PlanStep
  typed: Record<string, string>
  onType: (typed: Record<string, string> | undefined) => void
  answer: WhatIfAnswer | undefined
  error: Error | null
}

export function WhatIf({ step, typed, onType, answer, error }: Props) {
  const change = (key: string, text: string) => {
    const next = { ...typed, [key]: text }
    if (text === writtenValue(key, step.policy[key]?.value) || text === '') delete next[key]
    onType(Object.keys(next).length > 0 ? next : undefined)
  }
  return (
    <section aria-label="What if" className="card flex flex-col gap-3 p-3">
      <div className="flex items-center gap-2">
        <h2 className="grow font-semibold">
          What if the policy of <code>{step.name}</code> were
        </h2>
        {Object.keys(typed).length > 0 && <Button onClick={() => onType(undefined)}>As it was</Button>}
      </div>
      <div className="grid grid-cols-[auto_minmax(0,1fr)_auto] items-center gap-x-2.5 gap-y-1.5">
        {POLICY_KEYS.filter(({ key }) => key in step.policy).map(key => (
          <Field key={key.key} of={key} step={step} typed={typed[key.key]} onType={text => change(key.key, text)} />
        ))}
      </div>
      {error instanceof Problem && error.mistakes.length > 0 ? (
        <div role="alert" className="text-failed">
          {error.mistakes.map((mistake, i) => (
            <p key={i}>
              <JobText>{mistake.message}</JobText> {mistake.help && <JobText>{`(${mistake.help})`}</JobText>}
            </p>
          ))}
        </div>
      ) : (
        error && <Failure error={error} />
      )}
      {answer && !error && (
        <p role="status" className="rounded-md bg-accent-soft px-2 py-1.5 font-medium text-accent" data-what-if>
          <JobText>{answer.summary}</JobText>
        </p>
      )}
      {!answer && !error && (
        <p className="text-muted">
          Change a value. The recorded outcomes are judged anew, by the rules that decided them, and the differences are shown in place.
        </p>
      )}
    </section>
  )
}

interface FieldProps {
  of: PolicyKey
  step: PlanStep
  typed: string | undefined
  onType: (text: string) => void
}

function Field({ of: { key, label = key, kind, choices, about }, step, typed, onType }: FieldProps) {
  const id = useId()
  const planned = writtenValue(key, step.policy[key]?.value)
  const value = typed ?? planned
  const options = kind === 'flag' ? ['true', 'false'] : choices
  const changed = typed !== undefined
  return (
    <>
      <label htmlFor={id} title={about} className={changed ? 'font-semibold text-accent' : 'text-muted'}>
        {label}
      </label>
      {options ? (
        <Select id={id} value={value} onChange={event => onType(event.target.value)}>
          {[...new Set([planned, ...options])].map(option => (
            <option key={option}>{option}</option>
          ))}
        </Select>
      ) : (
        <TextInput
          id={id}
          value={value}
          onChange={event => onType(event.target.value)}
          placeholder={kind === 'duration' ? 'no limit' : 'not set'}
          className="min-w-0 font-mono"
        />
      )}
      <span className="text-[0.92em] text-muted">
        {changed ? <>was {planned || (kind === 'duration' ? 'no limit' : 'not set')}</> : step.policy[key]?.source}
      </span>
    </>
  )
}
