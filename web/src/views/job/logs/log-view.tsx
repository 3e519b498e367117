/** One log. A log has no bound and no manners: lines and their length are capped, and everything in it is text. */
import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useMemo, useRef, useState } from 'react'
import { useShortcuts } from '@/app/shortcuts'
import { Button, Failure, IconButton, Switch, TextInput } from '@/components/ui'
import { AnsiParser, type Segment, type Style } from '@/lib/ansi'
import { bytes, count, plural } from '@/lib/format'
import { LogBuffer, type LogLine } from '@/lib/log-buffer'
import { downloadLog, readLog } from '@/services/logs'
import type { Log } from '@/services/model'
import { useJobSearch } from '../use-job'

/** Of a longer log the end is read first. */
const FIRST_READ_BYTES = 4 << 20
const LINE_HEIGHT = 19
/** Characters of a line on the screen until the reader asks for more. */
const SHOWN_OF_LINE = 2_000

function useLog(job: string, log: Log, from: number): { buffer: LogBuffer; version: number; done: boolean; error: Error | null } {
  const buffer = useMemo(() => new LogBuffer(), [job, log.step, log.name, from])
  const [state, setState] = useState<{ version: number; done: boolean; error: Error | null }>({ version: 0, done: false, error: null })
  useEffect(() => {
    const stop = new AbortController()
    let drawn = 0
    const draw = () => setState(before => ({ ...before, version: before.version + 1 }))
    const read = async () => {
      for await (const piece of readLog(job, log, from, true, stop.signal)) {
        buffer.push(piece)
        if (performance.now() - drawn < 120) continue
        drawn = performance.now()
        draw()
      }
      setState(before => ({ version: before.version + 1, done: true, error: null }))
    }
    // What came within the last pause between two drawings.
    const rest = setInterval(draw, 250)
    read()
      .catch(error => !stop.signal.aborted && setState(before => ({ ...before, error: error as Error })))
      .finally(() => clearInterval(rest))
    return () => (stop.abort(), clearInterval(rest))
  }, [buffer])
  return { buffer, ...state }
}

export function LogView({ job, log }: { job: string; log: Log }) {
  const [search, change] = useJobSearch()
  const [from, setFrom] = useState(() => Math.max(0, log.size - FIRST_READ_BYTES))
  const { buffer, version, done, error } = useLog(job, log, from)
  const [find, setFind] = useState(search.find ?? '')
  const field = useRef<HTMLInputElement>(null)
  const scroller = useRef<HTMLDivElement>(null)
  const styled = useMemo(() => styledLines(buffer.lines), [buffer, version])
  const hits = useMemo(() => matches(styled, find), [styled, find])
  const [hit, setHit] = useState(0)
  const virtual = useVirtualizer({
    count: styled.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => LINE_HEIGHT,
    overscan: 30,
  })
  const follow = search.follow ?? false
  useEffect(() => {
    if (follow && styled.length > 0) virtual.scrollToIndex(styled.length - 1)
  }, [follow, styled.length])
  useEffect(() => {
    const timer = setTimeout(() => find !== (search.find ?? '') && change({ find: find || undefined }), 300)
    return () => clearTimeout(timer)
  }, [find])
  const jump = (by: number) => {
    if (hits.length === 0) return
    const next = (hit + by + hits.length) % hits.length
    setHit(next)
    virtual.scrollToIndex(hits[next] ?? 0, { align: 'center' })
  }
  useShortcuts('Log', [
    { keys: '/', about: 'Search', run: () => field.current?.focus() },
    { keys: 'n', about: 'Next match', run: () => jump(1) },
    { keys: 'N', about: 'Previous match', run: () => jump(-1) },
    { keys: 'G', about: 'Follow the end', run: () => change({ follow: !follow || undefined }) },
  ])
  return (
    <section aria-label={log.name} className="flex min-h-64 min-w-0 grow flex-col">
      <div className="flex flex-wrap items-center gap-2 border-b border-line bg-surface px-3 py-1.5">
        <TextInput
          ref={field}
          type="search"
          aria-label="Search in the log"
          placeholder="Search"
          value={find}
          onChange={event => setFind(event.target.value)}
          onKeyDown={event => event.key === 'Enter' && jump(event.shiftKey ? -1 : 1)}
          className="w-44"
        />
        {find !== '' && (
          <span className="text-muted" role="status">
            {hits.length === 0 ? 'no match' : `${hit + 1} of ${count(hits.length)}`}
          </span>
        )}
        <Switch on={follow} onChange={on => change({ follow: on || undefined })}>
          follow
        </Switch>
        <span className="grow" />
        <span className="text-muted" data-log-lines={styled.length}>
          {plural(styled.length, 'line')}
          {done ? '' : ' …'}
        </span>
        {from > 0 && <Button onClick={() => setFrom(0)}>{bytes(from)} earlier</Button>}
        <IconButton icon="download" label="Download the whole log" onClick={() => void downloadLog(job, log)} />
      </div>
      {error && <Failure error={error} />}
      {buffer.dropped > 0 && (
        <p className="bg-waiting-soft px-3 py-1 text-waiting">
          The first {plural(buffer.dropped, 'line')} are not held any more; the download has them.
        </p>
      )}
      <div
        ref={scroller}
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-label="Log"
        className="min-h-0 grow basis-0 overflow-auto bg-sunken py-1 font-mono text-[12px] leading-[19px]"
      >
        <div className="relative" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map(({ index, start, key }) => {
            const line = styled[index]
            return (
              line && (
                <div
                  key={key}
                  data-index={index}
                  ref={virtual.measureElement}
                  className={`absolute inset-x-0 flex px-3 ${hits[hit] === index && find ? 'bg-accent-soft' : ''}`}
                  style={{ transform: `translateY(${start}px)` }}
                >
                  <span className="mr-3 w-12 shrink-0 text-right text-muted select-none" aria-hidden>
                    {line.line.number}
                  </span>
                  <Line line={line} find={find} />
                </div>
              )
            )
          })}
        </div>
      </div>
    </section>
  )
}

interface StyledLine {
  line: LogLine
  segments: Segment[]
}

function styledLines(lines: LogLine[]): StyledLine[] {
  const parser = new AnsiParser()
  return lines.map(line => ({ line, segments: parser.line(line.text) }))
}

function matches(lines: StyledLine[], find: string): number[] {
  if (find === '') return []
  const wanted = find.toLowerCase()
  return lines.flatMap(({ segments }, i) => (segments.some(segment => segment.text.toLowerCase().includes(wanted)) ? [i] : []))
}

function Line({ line: { line, segments }, find }: { line: StyledLine; find: string }) {
  const [most, setMost] = useState(SHOWN_OF_LINE)
  let left = most
  const shown: Segment[] = []
  for (const segment of segments) {
    if (left <= 0) break
    shown.push({ ...segment, text: segment.text.slice(0, left) })
    left -= segment.text.length
  }
  const kept = segments.reduce((sum, segment) => sum + segment.text.length, 0)
  const hidden = Math.max(0, kept - most)
  return (
    <span className="inert min-w-0 whitespace-pre-wrap">
      {shown.map((segment, i) => (
        <span key={i} style={css(segment.style)}>
          {marked(segment.text, find)}
        </span>
      ))}
      {hidden > 0 && (
        <button type="button" className="ml-1 text-accent underline" onClick={() => setMost(most * 4)}>
          {count(hidden)} more characters
        </button>
      )}
      {line.cut > 0 && (
        <span className="ml-1 text-muted" data-cut={line.cut}>
          … {count(line.cut)} characters are not shown; the download has them
        </span>
      )}
    </span>
  )
}

function marked(text: string, find: string) {
  if (find === '') return text
  const at = text.toLowerCase().indexOf(find.toLowerCase())
  if (at < 0) return text
  return (
    <>
      {text.slice(0, at)}
      <mark className="rounded-sm bg-waiting-solid text-black">{text.slice(at, at + find.length)}</mark>
      {text.slice(at + find.length)}
    </>
  )
}

/** The sixteen colours as ours, readable on both themes. */
const PALETTE = ['--idle', '--failed', '--succeeded', '--waiting', '--running', '--lost', '--accent', '--text']

function colorOf(color: number | string | undefined): string | undefined {
  if (color === undefined || typeof color === 'string') return color
  return `var(${PALETTE[color % 8]})`
}

function groundOf(color: number | string | undefined): string | undefined {
  if (color === undefined) return undefined
  return typeof color === 'string'
    ? `color-mix(in srgb, ${color} 30%, var(--sunken))`
    : `color-mix(in srgb, ${colorOf(color)} 26%, var(--sunken))`
}

function css(style: Style): React.CSSProperties {
  const back = style.inverse ? (style.color ?? 7) : style.background
  // On a coloured ground text is plain: the pairs that programs choose are not readable in both themes.
  const front = back === undefined ? colorOf(style.color) : 'var(--text)'
  return {
    color: front,
    background: groundOf(back),
    fontWeight: style.bold ? 700 : undefined,
    opacity: style.dim ? 0.7 : undefined,
    fontStyle: style.italic ? 'italic' : undefined,
    textDecoration: style.underline ? 'underline' : undefined,
  }
}
