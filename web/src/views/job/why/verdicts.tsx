/** The decisions on one item, each with what it moved; beside them, if asked, what another policy would have decided. */
import { StateIcon } from '@/components/state'
import { JobText } from '@/components/ui'
import { clockTimeMs, duration, exactTime, words } from '@/lib/format'
import type { Decision, JudgedVerdict, Verdict } from '@/services/model'
import { AccountBars, accountsOf, windowSpent } from './accounts'

function DecisionText({ decision }: { decision: Decision }) {
  if (decision.verdict === 'complete') return <span className="text-succeeded">complete</span>
  if (decision.verdict === 'stop') return <span className="font-semibold text-failed">stop: {words(decision.reason)}</span>
  const when = decision.delay === 0 ? 'retry at once' : `retry in ${duration(decision.delay)}`
  return (
    <span className="text-waiting">
      {when}
      {decision.cause !== 'failure' && ` (${decision.cause})`}
    </span>
  )
}

const ICON = { complete: 'succeeded', retry: 'backing_off', stop: 'failed' }

interface Props {
  verdicts: Verdict[]
  judged: Map<number, JudgedVerdict> | null
  selected: number | undefined
  onSelect: (seq: number | undefined) => void
}

export function VerdictList({ verdicts, judged, selected, onSelect }: Props) {
  return (
    <ol className="flex flex-col">
      {verdicts.map(verdict => (
        <VerdictRow
          key={verdict.seq}
          verdict={verdict}
          all={verdicts}
          other={judged?.get(verdict.seq)}
          open={selected === verdict.seq || (selected === undefined && verdict === verdicts.at(-1))}
          onToggle={() => onSelect(selected === verdict.seq ? undefined : verdict.seq)}
        />
      ))}
    </ol>
  )
}

interface RowProps {
  verdict: Verdict
  all: Verdict[]
  other: JudgedVerdict | undefined
  open: boolean
  onToggle: () => void
}

function VerdictRow({ verdict, all, other, open, onToggle }: RowProps) {
  return (
    <li
      className={`border-b border-line last:border-0 ${other?.differs ? 'bg-accent-soft' : ''}`}
      data-verdict={verdict.seq}
      data-differs={other?.differs}
    >
      <button
        type="button"
        aria-expanded={open}
        onClick={onToggle}
        className="flex w-full flex-wrap items-baseline gap-x-3 px-3 py-1.5 text-left hover:bg-hover"
      >
        <time className="text-muted" title={exactTime(verdict.at)}>
          {clockTimeMs(verdict.at)}
        </time>
        <span className="w-20">attempt {verdict.attempt}</span>
        <JobText className="min-w-24 text-muted">{verdict.error ?? verdict.outcome ?? 'no attempt'}</JobText>
        <span className="inline-flex items-baseline gap-1.5">
          <span className="self-center">
            <StateIcon state={ICON[verdict.decision.verdict]} />
          </span>
          <span className={other?.differs ? 'line-through opacity-80' : ''}>
            <DecisionText decision={verdict.decision} />
          </span>
        </span>
        {other && <Judged other={other} />}
      </button>
      {open && (
        <div className="@container flex flex-col gap-2 px-3 pb-3">
          <p className="text-muted">
            because <JobText className="text-text">{verdict.rule.text}</JobText>
            {verdict.rule.check !== null && <span title="its place among the checks of a verdict"> (check {verdict.rule.check})</span>}
          </p>
          <AccountBars accounts={accountsOf(verdict.before, verdict.after, windowSpent(all, verdict))} />
          <Counterfactual verdict={verdict} />
          {other?.accounts && other.differs && (
            <div className="rounded-md border border-accent p-2">
              <p className="mb-1.5 font-medium text-accent">The accounts under the changed policy</p>
              <AccountBars accounts={accountsOf(verdict.before, other.accounts, windowSpent(all, verdict))} />
            </div>
          )}
        </div>
      )}
    </li>
  )
}

function Judged({ other }: { other: JudgedVerdict }) {
  if (!other.differs) return <span className="text-muted">= the same</span>
  return (
    <span data-judged>
      <span className="font-semibold text-accent">→ </span>
      {other.judged && (
        <strong>
          <DecisionText decision={other.judged} />{' '}
        </strong>
      )}
      <JobText className={other.judged ? 'text-muted' : 'font-medium text-accent'}>
        {other.note ?? (other.judged ? '' : 'would not have been')}
      </JobText>
    </span>
  )
}

function Counterfactual({ verdict }: { verdict: Verdict }) {
  const text = verdict.counterfactual?.text ?? verdict.nothingWould
  if (!text) return null
  return (
    <p className="rounded-md bg-sunken px-2 py-1.5" data-counterfactual>
      <JobText>{text.replaceAll('`', '')}</JobText>
    </p>
  )
}
