import { expect, test } from 'vitest'
import { SseParser } from '@/lib/sse'

const STREAM = ': hello\r\nid: 7\r\nevent: jobs\r\ndata: {"a":\r\ndata: 1}\r\n\r\ndata:second\n\nid: 8\ndata\n\n'

test('every way to cut a stream gives the same events', () => {
  const whole = new SseParser().push(STREAM)
  expect(whole).toEqual([
    { id: '7', event: 'jobs', data: '{"a":\n1}' },
    { id: '7', event: 'message', data: 'second' },
    { id: '8', event: 'message', data: '' },
  ])
  for (let cut = 0; cut <= STREAM.length; cut++) {
    const parser = new SseParser()
    const events = [...parser.push(STREAM.slice(0, cut)), ...parser.push(STREAM.slice(cut))]
    expect(events, `cut at ${cut}`).toEqual(whole)
  }
  const parser = new SseParser()
  expect([...STREAM].flatMap(character => parser.push(character))).toEqual(whole)
})

test('an event that has not ended is not told', () => {
  expect(new SseParser().push('data: half\n')).toEqual([])
})
