/** A step as the graph shows it: over all datacenters together. */
import type { Item, Job, Plan } from '@/services/model'

export interface StepView {
  name: string
  needs: string[]
  goal: boolean
  fanOut: boolean
  state: string
  counts: Record<string, number>
  items: number
  attempts: number
  retryAt: number | null
  retriesUsed: number
  skippedBecause: string | null
  error: string | null
  fallback: Item | null
  compensation: Item | null
  runs: { datacenter: string; state: string }[]
}

/** The state that an operator must know of wins. */
const RANK = ['failed', 'backing_off', 'running', 'awaiting_callback', 'waiting', 'cancelled', 'skipped', 'succeeded']

/** A step that is as it was `before` stays the same object, so that nothing of it is drawn again. */
export function mergeSteps(job: Job, plan: Plan, before: StepView[]): StepView[] {
  const byName = new Map<string, StepView>()
  for (const step of plan.steps) {
    byName.set(step.name, {
      name: step.name,
      needs: step.needs,
      goal: plan.goals.includes(step.name),
      fanOut: step.fanOut,
      state: 'waiting',
      counts: {},
      items: 0,
      attempts: 0,
      retryAt: null,
      retriesUsed: 0,
      skippedBecause: null,
      error: null,
      fallback: null,
      compensation: null,
      runs: [],
    })
  }
  for (const run of job.runs) {
    for (const step of run.steps) {
      const view = byName.get(step.name)
      if (!view) continue
      const state = waitsForRetry(step.state, step.counts) ? 'backing_off' : step.state
      view.runs.push({ datacenter: run.datacenter ?? '', state })
      for (const [name, amount] of Object.entries(step.counts)) {
        view.counts[name] = (view.counts[name] ?? 0) + amount
        view.items += amount
      }
      for (const item of step.items) {
        view.attempts += item.attempts.length
        if (item.retryAt !== null) view.retryAt = Math.min(view.retryAt ?? Infinity, item.retryAt)
      }
      view.retriesUsed = step.retriesUsed
      view.skippedBecause ??= step.skippedBecause
      view.error ??= step.error
      view.fallback ??= step.fallback
      view.compensation ??= step.compensation
    }
  }
  for (const view of byName.values()) {
    const states = view.runs.map(run => run.state)
    view.state = RANK.find(state => states.includes(state)) ?? 'waiting'
  }
  return [...byName.values()].map((view, i) => (JSON.stringify(view) === JSON.stringify(before[i]) ? (before[i] ?? view) : view))
}

/** Nothing of the step runs, and something of it waits for its next attempt. */
function waitsForRetry(state: string, counts: Record<string, number>): boolean {
  return state === 'running' && !counts.running && !counts.awaiting_callback && !counts.ready && (counts.backing_off ?? 0) > 0
}
