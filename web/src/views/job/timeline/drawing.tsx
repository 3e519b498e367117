/** The blocks of one row, the axis above them, and what they mean. */
import { memo } from 'react'
import { toneFill } from '@/components/state'
import { clockTime, clockTimeMs, duration, words } from '@/lib/format'
import { tickStep, type TimeScale } from '@/lib/time-scale'
import type { Span } from '@/services/timeline'

export const ROW_HEIGHT = 26

/** From compressed time to pixels. */
export interface Window {
  scale: TimeScale
  start: number
  end: number
  width: number
}

export function pixel({ scale, start, end, width }: Window, at: number): number {
  return ((scale.place(at) - start) / Math.max(1e-9, end - start)) * width
}

export function Patterns() {
  return (
    <svg width="0" height="0" className="absolute" aria-hidden>
      <defs>
        <pattern id="backoff" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="6" height="6" fill="var(--waiting-soft)" />
          <rect width="2" height="6" fill="var(--waiting-solid)" />
        </pattern>
        <pattern id="paused" width="5" height="5" patternUnits="userSpaceOnUse">
          <rect width="5" height="5" fill="var(--paused-soft)" />
          <rect width="1.6" height="5" fill="var(--paused-solid)" />
        </pattern>
      </defs>
    </svg>
  )
}

interface RowProps {
  spans: Span[]
  view: Window
  now: number
  retryAt: number | null
}

export const RowBlocks = memo(function RowBlocks({ spans, view, now, retryAt }: RowProps) {
  const shapes = visible(spans, view, now)
  const due = retryAt !== null && retryAt > now ? pixel(view, retryAt) : null
  return (
    <svg width={view.width} height={ROW_HEIGHT} className="block">
      {shapes.map(({ span, x, width }, i) => (
        <Block key={i} span={span} x={x} width={width} now={now} />
      ))}
      {due !== null && due >= 0 && due <= view.width && (
        <g data-retry-at={retryAt}>
          <rect
            x={pixel(view, now)}
            y={8}
            width={Math.max(0, due - pixel(view, now))}
            height={ROW_HEIGHT - 16}
            fill="url(#backoff)"
            opacity="0.4"
          />
          <line x1={due} x2={due} y1={4} y2={ROW_HEIGHT - 4} stroke="var(--waiting)" strokeWidth="1.5" strokeDasharray="3 2" />
          <path d={`M${due - 3.5} ${ROW_HEIGHT / 2 - 4} l7 4 l-7 4 z`} fill="var(--waiting)" />
        </g>
      )}
    </svg>
  )
})

interface Shape {
  span: Span
  x: number
  width: number
}

/** Only what is on the screen, and of blocks that share a pixel one: a row never has more shapes than pixels. */
function visible(spans: Span[], view: Window, now: number): Shape[] {
  const shapes: Shape[] = []
  for (const span of spans) {
    const x = pixel(view, span.from)
    const width = pixel(view, span.to ?? now) - x
    if (x + width < 0 || x > view.width) continue
    const last = shapes.at(-1)
    const sameShape = last && last.span.kind === span.kind && last.span.end === span.end
    if (sameShape && width < 1 && x - last.x < 1.5) last.width = Math.max(last.width, x + width - last.x)
    else shapes.push({ span, x: Math.max(-4, x), width: Math.min(view.width + 8, width + Math.min(0, x + 4)) })
  }
  return shapes
}

const THIN: Partial<Record<Span['kind'], string>> = { backoff: 'url(#backoff)', paused: 'url(#paused)' }

function Block({ span, x, width, now }: Shape & { now: number }) {
  const title = <title>{describe(span, now)}</title>
  if (span.kind === 'queued') {
    const y = ROW_HEIGHT / 2
    return (
      <g data-span="queued">
        <rect x={x} y={y - 5} width={Math.max(0, width)} height={10} fill="transparent">
          {title}
        </rect>
        <line x1={x} x2={x + width} y1={y} y2={y} stroke="var(--idle-solid)" strokeWidth="2" strokeDasharray="1.5 3" pointerEvents="none" />
      </g>
    )
  }
  const thin = THIN[span.kind]
  if (thin) {
    return (
      <rect data-span={span.kind} x={x} y={8} width={Math.max(1, width)} height={ROW_HEIGHT - 16} fill={thin}>
        {title}
      </rect>
    )
  }
  const state = span.to === null ? 'running' : (span.end ?? 'running')
  const block = (
    <rect
      data-span={span.kind}
      data-end={state}
      x={x}
      y={4}
      width={Math.max(3, width)}
      height={ROW_HEIGHT - 8}
      rx={Math.min(3, width / 2)}
      fill={toneFill(state)}
      opacity={span.kind === 'callback' ? 0.55 : 1}
    >
      {title}
    </rect>
  )
  if (width < 16) return block
  return (
    <g>
      {block}
      <text x={Math.max(x, 0) + 5} y={ROW_HEIGHT / 2 + 4} fontSize="11" fontWeight="600" fill="#fff" pointerEvents="none">
        {MARK[state] ?? ''}
      </text>
    </g>
  )
}

/** Beside the colour. */
const MARK: Record<string, string> = {
  succeeded: '✓',
  failed: '✗',
  timed_out: '⧖',
  not_completed: '⊘',
  worker_lost: '⚡',
  killed: '■',
  running: '▸',
}

export function describe(span: Span, now: number): string {
  const long = duration((span.to ?? now) - span.from)
  const when = `${clockTimeMs(span.from)} – ${span.to === null ? 'now' : clockTimeMs(span.to)}, ${long}`
  if (span.kind === 'queued') return `waited for a worker\n${when}`
  if (span.kind === 'backoff') return `backed off\n${when}`
  if (span.kind === 'paused') return `waited while the job was paused\n${when}`
  const how = span.to === null ? 'running' : words(span.end ?? 'ended')
  return `attempt ${span.attempt}: ${how}${span.error ? ` (${span.error.slice(0, 200)})` : ''}\non ${span.worker}\n${when}`
}

/** A line through all rows. */
export interface Mark {
  at: number
  label: string
  color: string
}

interface AxisProps {
  view: Window
  marks: Mark[]
}

export function Axis({ view, marks }: AxisProps) {
  return (
    <svg width={view.width} height={30} className="block" role="img" aria-label="Time">
      {view.scale.pieces.map((piece, i) => {
        const x = pixel(view, piece.from)
        const width = pixel(view, piece.to) - x
        if (x + width < 0 || x > view.width) return null
        return piece.compressed ? (
          <Break key={i} x={x} width={width} idle={piece.to - piece.from} />
        ) : (
          <Ticks key={i} from={piece.from} to={piece.to} view={view} last={i === view.scale.pieces.length - 1} />
        )
      })}
      {marks.map(mark => (
        <AxisMark key={mark.label} at={pixel(view, mark.at)} label={mark.label} color={mark.color} />
      ))}
    </svg>
  )
}

function AxisMark({ at, label, color }: { at: number; label: string; color: string }) {
  return (
    <g>
      <line x1={at} x2={at} y1={16} y2={30} stroke={color} strokeWidth="1.5" />
      <text x={at - 3} y={28} fontSize="10.5" fontWeight="600" textAnchor="end" fill={color}>
        {label}
      </text>
    </g>
  )
}

function Ticks({ from, to, view, last }: { from: number; to: number; view: Window; last: boolean }) {
  const left = Math.max(from, view.scale.time(view.start))
  const right = Math.min(to, view.scale.time(view.end))
  const pixels = pixel(view, right) - pixel(view, left)
  const step = tickStep(right - left, pixels / 96)
  // A time that would run into the shortened stretch behind it is left out.
  const room = step < 1000 ? 78 : 54
  const ticks: number[] = []
  for (let at = Math.ceil(left / step) * step; at <= right && ticks.length < 60; at += step) ticks.push(at)
  return (
    <>
      {ticks.map(at => (
        <g key={at} className="text-muted">
          <line x1={pixel(view, at)} x2={pixel(view, at)} y1={22} y2={30} stroke="var(--line-strong)" />
          {(last || pixel(view, at) + room < pixel(view, to)) && (
            <text x={pixel(view, at) + 3} y={13} fontSize="10.5" fill="currentColor">
              {step < 1000 ? clockTimeMs(at) : clockTime(at)}
            </text>
          )}
        </g>
      ))}
    </>
  )
}

/** Idle time that was shortened. */
function Break({ x, width, idle }: { x: number; width: number; idle: number }) {
  const middle = x + width / 2
  return (
    <g data-break className="text-muted">
      <title>{`${duration(idle)} in which nothing ran, shortened`}</title>
      <rect x={x} y={18} width={width} height={12} fill="var(--sunken)" />
      <path d={`M${middle - 5} 30 l3 -12 M${middle + 2} 30 l3 -12`} stroke="currentColor" strokeWidth="1.3" />
      {width > 52 && (
        <text x={middle} y={13} fontSize="10.5" textAnchor="middle" fill="currentColor">
          {duration(idle)}
        </text>
      )}
    </g>
  )
}

export function Legend() {
  const entries: [string, string][] = [
    ['running', 'var(--running-solid)'],
    ['succeeded', 'var(--succeeded-solid)'],
    ['failed', 'var(--failed-solid)'],
    ['worker lost', 'var(--lost-solid)'],
    ['cut off', 'var(--idle-solid)'],
  ]
  return (
    <ul aria-label="Legend" className="flex flex-wrap items-center gap-x-3 gap-y-1 text-[0.92em] text-muted">
      {entries.map(([label, color]) => (
        <li key={label} className="flex items-center gap-1.5">
          <span className="h-2.5 w-3.5 rounded-sm" style={{ background: color }} />
          {label}
        </li>
      ))}
      <li className="flex items-center gap-1.5">
        <svg width="18" height="10" aria-hidden>
          <rect width="18" height="10" fill="url(#backoff)" />
        </svg>
        backoff
      </li>
      <li className="flex items-center gap-1.5">
        <svg width="18" height="10" aria-hidden>
          <line x1="0" x2="18" y1="5" y2="5" stroke="var(--idle-solid)" strokeWidth="2" strokeDasharray="1.5 3" />
        </svg>
        queued
      </li>
      <li className="flex items-center gap-1.5">
        <svg width="18" height="10" aria-hidden>
          <rect width="18" height="10" fill="url(#paused)" />
        </svg>
        paused
      </li>
    </ul>
  )
}
