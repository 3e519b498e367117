import { expect, test } from 'vitest'
import { boundsOf, boxesPath, edgesOf, edgesPath, HEIGHT, regionInSight, sameBounds, stepAt, WIDTH } from '@/views/job/graph/drawing'

const places = { a: { x: 0, y: 10 }, b: { x: 300, y: 0 }, c: { x: 600, y: 90 } }
const steps = [
  { name: 'a', needs: [] },
  { name: 'b', needs: ['a'] },
  { name: 'c', needs: ['a', 'b', 'gone'] },
]

const edges = edgesOf(steps, places)
const curves = (path: string) => path.split('M').length - 1

test('every edge goes from the end of the one to the beginning of the other', () => {
  expect(edges.map(({ from, to }) => `${from} ${to}`)).toEqual(['a b', 'a c', 'b c'])
  expect(edges[0]?.path).toBe(`M${WIDTH} ${10 + HEIGHT / 2}C254 41 254 31 300 ${HEIGHT / 2}`)
})

test('an edge is drawn where any of it may be seen, and nowhere else', () => {
  expect(curves(edgesPath(edges, boundsOf(places)))).toBe(3)
  expect(curves(edgesPath(edges, { x: 220, y: 35, width: 20, height: 10 }))).toBe(2)
  expect(curves(edgesPath(edges, { x: 400, y: 50, width: 20, height: 20 }))).toBe(1)
  expect(edgesPath(edges, { x: 0, y: 200, width: 900, height: 100 })).toBe('')
  const back = edgesOf([{ name: 'a', needs: ['b'] }], places)
  expect(curves(edgesPath(back, { x: 510, y: 20, width: 20, height: 40 }))).toBe(1)
})

test('all that is in sight lies within the region, which a small move leaves as it is', () => {
  for (const zoom of [0.05, 0.3, 0.7, 1, 2])
    for (const [left, top] of [
      [0, 0],
      [-1234.5, 87],
      [640, -4096],
    ] as const) {
      const { x, y, width, height } = regionInSight([left, top, zoom], 1440, 700)
      expect(x).toBeLessThanOrEqual(-left / zoom)
      expect(y).toBeLessThanOrEqual(-top / zoom)
      expect(x + width).toBeGreaterThanOrEqual((1440 - left) / zoom)
      expect(y + height).toBeGreaterThanOrEqual((700 - top) / zoom)
      expect(width).toBeLessThanOrEqual((3 * 1440) / zoom)
    }
  expect(sameBounds(regionInSight([-10, -10, 1], 1440, 700), regionInSight([-40, -60, 1], 1440, 700))).toBe(true)
})

test('a step is found where it is drawn', () => {
  expect(boundsOf(places)).toEqual({ x: 0, y: 0, width: 600 + WIDTH, height: 90 + HEIGHT })
  expect(stepAt(places, { x: 300, y: 0 })).toBe('b')
  expect(stepAt(places, { x: 300 + WIDTH + 1, y: 0 })).toBeUndefined()
  expect(boxesPath([places.a, places.b], 6)).toBe(`M0 10h6v${HEIGHT}h-6zM300 0h6v${HEIGHT}h-6z`)
  expect(boundsOf({}).width).toBe(WIDTH)
})
