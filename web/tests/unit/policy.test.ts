import { expect, test, vi } from 'vitest'
import { duration } from '@/lib/format'
import { judgeGrid } from '@/lib/grid'
import { LogBuffer, LONGEST_LINE } from '@/lib/log-buffer'
import { Pace } from '@/lib/pace'
import { changedKeys, readValue, writtenValue } from '@/lib/policy'

test('a policy is written as a job file has it', () => {
  expect(writtenValue('initial_delay', 200)).toBe('200ms')
  expect(writtenValue('max_attempts', null)).toBe('unlimited')
  expect(writtenValue('delay_budget', null)).toBe('')
  expect(writtenValue('exit_codes', { retry: [], stop: [2, 64] })).toBe('stop 2, 64')
})

test('only what was changed is asked', () => {
  const planned = { max_attempts: { value: 3 }, initial_delay: { value: 1000 }, backoff: { value: 'exponential' } }
  expect(changedKeys(planned, { max_attempts: '3', initial_delay: '2s', backoff: 'fixed' })).toEqual({
    initial_delay: '2s',
    backoff: 'fixed',
  })
  expect(changedKeys(planned, { max_attempts: ' ' })).toEqual({})
  expect(changedKeys(planned, { 'retry_budget.total': '9', 'retry_budget.per_step': '4' })).toEqual({
    retry_budget: { total: 9, per_step: 4 },
  })
})

test('what cannot be read is sent as it is, for the server to refuse', () => {
  expect(readValue('max_attempts', '6')).toBe(6)
  expect(readValue('max_attempts', 'unlimited')).toBe('unlimited')
  expect(readValue('max_attempts', 'many')).toBe('many')
  expect(readValue('retryable', 'false')).toBe(false)
  expect(readValue('exit_codes', 'stop 2, 64; retry 75')).toEqual({ stop: [2, 64], retry: [75] })
})

test('lengths of time are short', () => {
  expect([0, 999, 1700, 59_999, 61_000, 3_600_000, 90_000_000].map(duration)).toEqual([
    '0ms',
    '999ms',
    '1.7s',
    '59.9s',
    '1m 1s',
    '1h',
    '1d 1h',
  ])
})

test('a poison item is told from a bad worker', () => {
  const cells = (...of: [string, number, number][]) => of.map(([worker, failures, successes]) => ({ worker, failures, successes }))
  const poison = { job: 'j', name: 's[0]', cells: cells(['a', 2, 0], ['b', 1, 0]) }
  const fine = [1, 2].map(index => ({ job: 'j', name: `s[${index}]`, cells: cells(['bad', 3, 0], ['a', 0, 1]) }))
  expect(judgeGrid({ workers: ['a', 'b', 'bad'], items: [poison, ...fine] })).toEqual({ poisonItems: [poison], badWorkers: ['bad'] })
})

test('a line of ten megabytes is cut, and counted', () => {
  const buffer = new LogBuffer()
  for (let i = 0; i < 160; i++) buffer.push('x'.repeat(65_536))
  buffer.push('\nnext')
  expect(buffer.lines.map(line => line.text.length)).toEqual([LONGEST_LINE, 4])
  expect(buffer.lines[0]?.cut).toBe(160 * 65_536 - LONGEST_LINE)
})

test('what is asked for often is done as often as it is worth', () => {
  vi.useFakeTimers()
  let now = 0
  const done: number[] = []
  const pace = new Pace(
    cost => Math.max(10, cost * 5),
    () => now,
  )
  const ask = (cost: number) => pace.run('x', cost, () => done.push(now))
  ask(0)
  ask(0)
  ask(0)
  now = 10
  vi.advanceTimersByTime(10)
  ask(100)
  now = 509
  vi.advanceTimersByTime(499)
  expect(done).toEqual([0, 10])
  now = 510
  vi.advanceTimersByTime(1)
  expect(done).toEqual([0, 10, 510])
  vi.useRealTimers()
})

test('lines are the same however the log comes', () => {
  const text = 'a\n\nb\nc'
  const whole = new LogBuffer()
  whole.push(text)
  const parts = new LogBuffer()
  for (const character of text) parts.push(character)
  expect(parts.lines).toEqual(whole.lines)
  expect(whole.lines.map(line => line.text)).toEqual(['a', '', 'b', 'c'])
})
