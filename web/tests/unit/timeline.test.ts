import { expect, test } from 'vitest'
import { buildScale, tickStep } from '@/lib/time-scale'
import type { JobEvent } from '@/services/model'
import { TimelineFold, withPauses, type Span } from '@/services/timeline'

let seq = 0
const event = (at: number, kind: string, detail: Record<string, unknown> = {}): JobEvent => ({ seq: ++seq, at, kind, detail })
const item = { run: 0, step: 0, index: 0 }

function folded(...events: JobEvent[]): TimelineFold {
  const fold = new TimelineFold()
  for (const one of events) fold.add(one)
  return fold
}

const kinds = (spans: Span[] | undefined) => spans?.map(({ kind, from, to, end }) => [kind, from, to, ...(end ? [end] : [])])

test('queueing, attempt, backoff and queueing again are told apart', () => {
  const fold = folded(
    event(0, 'StepReady', { run: 0, step: 0, items: 1 }),
    event(5, 'AttemptStarted', { item, attempt: 1, worker: 'w' }),
    event(9, 'AttemptEnded', { item, attempt: 1, outcome: { failed: { kind: { exited: 7 } } } }),
    event(9, 'RetryScheduled', { item, due_at: 20 }),
    event(20, 'RetryDue', { item }),
    event(22, 'AttemptStarted', { item, attempt: 2, worker: 'w' }),
  )
  expect(kinds(fold.rows.get('0.0.item.0')?.spans)).toEqual([
    ['queued', 0, 5],
    ['attempt', 5, 9, 'failed'],
    ['backoff', 9, 20],
    ['queued', 20, 22],
    ['attempt', 22, null],
  ])
})

test('an event that is told twice counts once', () => {
  const start = event(1, 'AttemptStarted', { item, attempt: 1, worker: 'w' })
  expect(folded(start, start).rows.get('0.0.item.0')?.spans).toHaveLength(1)
})

test('what was cut off with its run has ended', () => {
  const row = folded(
    event(0, 'AttemptStarted', { item, attempt: 1, worker: 'w' }),
    event(4, 'RunEnded', { run: 0, end: 'cancelled' }),
  ).rows.get('0.0.item.0')
  expect(kinds(row?.spans)).toEqual([['attempt', 0, 4, 'killed']])
  expect(row?.state).toBe('cancelled')
})

test('a pause takes its part of a wait, not of an attempt', () => {
  const spans: Span[] = [
    { kind: 'backoff', from: 0, to: 10 },
    { kind: 'attempt', from: 10, to: 20 },
  ]
  expect(kinds(withPauses(spans, [{ from: 4, to: 15 }], 30))).toEqual([
    ['backoff', 0, 4],
    ['paused', 4, 10],
    ['attempt', 10, 20],
  ])
  expect(kinds(withPauses([{ kind: 'queued', from: 0, to: null }], [{ from: 5, to: null }], 30))).toEqual([
    ['queued', 0, 5],
    ['paused', 5, null],
  ])
})

const row = (...spans: [number, number][]) => ({
  key: '',
  run: 0,
  step: 0,
  role: 'item' as const,
  index: 0,
  retryAt: null,
  state: 'succeeded',
  spans: spans.map(([from, to]): Span => ({ kind: 'attempt', from, to })),
})

test('long idle time is shortened, order and attempts are kept', () => {
  const scale = buildScale([row([0, 1000], [3_600_000, 3_602_000])], 0, 3_602_000, 3_602_000, true)
  expect(scale.pieces.filter(piece => piece.compressed)).toHaveLength(1)
  expect(scale.place(1000) - scale.place(0)).toBe(1000)
  expect(scale.place(3_602_000) - scale.place(3_600_000)).toBe(2000)
  expect(scale.length).toBeLessThan(5000)
  for (const at of [0, 500, 1000, 1_800_000, 3_600_000, 3_601_234]) expect(scale.time(scale.place(at))).toBeCloseTo(at, 3)
})

test('uncompressed, time is as it is', () => {
  const scale = buildScale([row([0, 10])], 0, 100_000, 100_000, false)
  expect(scale.place(60_000)).toBe(60_000)
})

test('ticks are round and few', () => {
  expect(tickStep(10_000, 10)).toBe(1000)
  expect(tickStep(3 * 3600e3, 6)).toBe(1800e3)
})
