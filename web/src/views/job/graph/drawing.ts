/** Steps and edges as paths: a path of a thousand is drawn faster than a thousand elements are made. */
import type { LayoutAnswer } from './layout-worker'

export const WIDTH = 208
export const HEIGHT = 62

export interface Point {
  x: number
  y: number
}

export interface Bounds extends Point {
  width: number
  height: number
}

/** From the right side of the one to the left side of the other. */
function edge(from: Point, to: Point): string {
  const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2]
  const bend = Math.max((x2 - x1) / 2, 24)
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`
}

/** All edges, or those of one step. */
export function edgesPath(steps: readonly { name: string; needs: readonly string[] }[], places: LayoutAnswer, of?: string): string {
  const path: string[] = []
  for (const { name, needs } of steps) {
    const to = places[name]
    for (const need of needs) {
      const from = places[need]
      if (from && to && (of === undefined || of === name || of === need)) path.push(edge(from, to))
    }
  }
  return path.join('')
}

export function boxesPath(at: readonly Point[], width: number): string {
  return at.map(({ x, y }) => `M${x} ${y}h${width}v${HEIGHT}h${-width}z`).join('')
}

export function boundsOf(places: LayoutAnswer): Bounds {
  const at = Object.values(places)
  const least = (of: (point: Point) => number) => at.reduce((found, point) => Math.min(found, of(point)), Infinity)
  const most = (of: (point: Point) => number) => at.reduce((found, point) => Math.max(found, of(point)), -Infinity)
  if (at.length === 0) return { x: 0, y: 0, width: WIDTH, height: HEIGHT }
  const [x, y] = [least(point => point.x), least(point => point.y)]
  return { x, y, width: most(point => point.x) - x + WIDTH, height: most(point => point.y) - y + HEIGHT }
}

export function stepAt(places: LayoutAnswer, { x, y }: Point): string | undefined {
  const holds = (place: Point) => x >= place.x && x <= place.x + WIDTH && y >= place.y && y <= place.y + HEIGHT
  return Object.keys(places).find(name => holds(places[name] as Point))
}
