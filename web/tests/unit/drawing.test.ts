import { expect, test } from 'vitest'
import { boundsOf, boxesPath, edgesPath, HEIGHT, stepAt, WIDTH } from '@/views/job/graph/drawing'

const places = { a: { x: 0, y: 10 }, b: { x: 300, y: 0 }, c: { x: 600, y: 90 } }
const steps = [
  { name: 'a', needs: [] },
  { name: 'b', needs: ['a'] },
  { name: 'c', needs: ['a', 'b', 'gone'] },
]

test('every edge goes from the end of the one to the beginning of the other', () => {
  const curves = (path: string) => path.split('M').length - 1
  expect(curves(edgesPath(steps, places))).toBe(3)
  expect(curves(edgesPath(steps, places, 'b'))).toBe(2)
  expect(edgesPath(steps, places, 'nobody')).toBe('')
  expect(edgesPath(steps.slice(0, 2), places)).toBe(`M${WIDTH} ${10 + HEIGHT / 2}C254 41 254 31 300 ${HEIGHT / 2}`)
})

test('a step is found where it is drawn', () => {
  expect(boundsOf(places)).toEqual({ x: 0, y: 0, width: 600 + WIDTH, height: 90 + HEIGHT })
  expect(stepAt(places, { x: 300, y: 0 })).toBe('b')
  expect(stepAt(places, { x: 300 + WIDTH + 1, y: 0 })).toBeUndefined()
  expect(boxesPath([places.a, places.b], 6)).toBe(`M0 10h6v${HEIGHT}h-6zM300 0h6v${HEIGHT}h-6z`)
  expect(boundsOf({}).width).toBe(WIDTH)
})
