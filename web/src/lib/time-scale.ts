/** Time to place on the screen. Long stretches in which nothing runs are shortened, with a mark, so that attempts keep their width. */
import type { Row } from '@/services/timeline'

export interface Piece {
  from: number
  to: number
  /** Where it begins and ends in compressed time. */
  start: number
  end: number
  compressed: boolean
}

/** The least that is worth shortening. */
const SHORTEST_IDLE_MS = 2_000

export class TimeScale {
  readonly length: number

  constructor(readonly pieces: Piece[]) {
    this.length = pieces.at(-1)?.end ?? 1
  }

  place(at: number): number {
    const piece = this.pieces.find(candidate => at <= candidate.to) ?? this.pieces.at(-1)
    if (!piece) return 0
    const part = (at - piece.from) / Math.max(1, piece.to - piece.from)
    return piece.start + part * (piece.end - piece.start)
  }

  time(place: number): number {
    const piece = this.pieces.find(candidate => place <= candidate.end) ?? this.pieces.at(-1)
    if (!piece) return 0
    const part = (place - piece.start) / Math.max(1e-9, piece.end - piece.start)
    return piece.from + part * (piece.to - piece.from)
  }
}

export function buildScale(rows: Iterable<Row>, from: number, to: number, now: number, compress: boolean): TimeScale {
  const end = Math.max(to, from + 1)
  if (!compress) return new TimeScale([{ from, to: end, start: 0, end: end - from, compressed: false }])
  const busy = merged(rows, now)
  const active = busy.reduce((sum, [start, stop]) => sum + stop - start, 0)
  const shown = Math.max(SHORTEST_IDLE_MS / 2, active / 8)
  const pieces: Piece[] = []
  let place = 0
  const add = (start: number, stop: number, idle: boolean) => {
    if (stop <= start) return
    const compressed = idle && stop - start > 2 * shown && stop - start > SHORTEST_IDLE_MS
    const width = compressed ? shown : stop - start
    const last = pieces.at(-1)
    if (last && !last.compressed && !compressed) {
      place += width
      last.to = stop
      last.end = place
      return
    }
    pieces.push({ from: start, to: stop, start: place, end: place + width, compressed })
    place += width
  }
  let at = from
  for (const [start, stop] of busy) {
    add(at, Math.min(start, end), true)
    add(Math.max(at, start), Math.min(stop, end), false)
    at = Math.max(at, stop)
  }
  add(at, end, true)
  return new TimeScale(pieces)
}

/** When anything ran, as intervals in order. */
function merged(rows: Iterable<Row>, now: number): [number, number][] {
  const all: [number, number][] = []
  for (const row of rows) {
    for (const span of row.spans) if (span.kind === 'attempt') all.push([span.from, Math.max(span.to ?? now, span.from + 1)])
  }
  all.sort((a, b) => a[0] - b[0])
  const result: [number, number][] = []
  for (const [start, stop] of all) {
    const last = result.at(-1)
    if (last && start <= last[1]) last[1] = Math.max(last[1], stop)
    else result.push([start, stop])
  }
  return result
}

/** Round steps for the axis: at most `most` of them over `span`. */
export function tickStep(span: number, most: number): number {
  const rough = span / Math.max(1, most)
  const steps = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5,
  ]
  return steps.find(step => step >= rough) ?? Math.ceil(rough / 864e5) * 864e5
}
