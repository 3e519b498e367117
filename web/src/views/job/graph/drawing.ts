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

export interface Edge {
  from: string
  to: string
  path: string
  bounds: Bounds
}

/** From the right side of the one to the left side of the other. */
function edge(need: string, from: Point, name: string, to: Point): Edge {
  const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2]
  const bend = Math.max((x2 - x1) / 2, 24)
  const [x, y] = [Math.min(x1, x2 - bend), Math.min(y1, y2)]
  return {
    from: need,
    to: name,
    path: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
    bounds: { x, y, width: Math.max(x1 + bend, x2) - x, height: Math.abs(y2 - y1) },
  }
}

export function edgesOf(steps: readonly { name: string; needs: readonly string[] }[], places: LayoutAnswer): Edge[] {
  return steps.flatMap(({ name, needs }) =>
    needs.flatMap(need => {
      const [from, to] = [places[need], places[name]]
      return from && to ? [edge(need, from, name, to)] : []
    }),
  )
}

/** Those that may be seen within: near by, the others would take most of the time. */
export function edgesPath(edges: readonly Edge[], within: Bounds): string {
  return edges
    .filter(({ bounds }) => meet(bounds, within))
    .map(({ path }) => path)
    .join('')
}

function meet(a: Bounds, b: Bounds): boolean {
  return a.x <= b.x + b.width && b.x <= a.x + a.width && a.y <= b.y + b.height && b.y <= a.y + a.height
}

/** What is in sight of a view, and some more, so that a small move leaves it as it is. */
export function regionInSight([left, top, zoom]: readonly [number, number, number], width: number, height: number): Bounds {
  const cell = 2 ** Math.ceil(Math.log2(Math.max(width, height, 1) / zoom)) / 2
  const before = (at: number) => Math.floor(at / cell) * cell
  const [x, y] = [before(-left / zoom), before(-top / zoom)]
  return { x, y, width: before((width - left) / zoom) + cell - x, height: before((height - top) / zoom) + cell - y }
}

export function sameBounds(a: Bounds, b: Bounds): boolean {
  return a.x === b.x && a.y === b.y && a.width === b.width && a.height === b.height
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
