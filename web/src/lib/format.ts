/** Numbers and times for people, in the spelling of the command line. */

const SECOND = 1000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** `200ms`, `1.7s`, `2m 5s`, `3h 4m`, `2d 1h` */
export function duration(ms: number): string {
  const all = Math.max(0, Math.round(ms))
  if (all < SECOND) return `${all}ms`
  if (all < MINUTE) return `${trim(Math.floor(all / 100) / 10)}s`
  if (all < HOUR) return pair(all, MINUTE, 'm', SECOND, 's')
  if (all < DAY) return pair(all, HOUR, 'h', MINUTE, 'm')
  return pair(all, DAY, 'd', HOUR, 'h')
}

function trim(value: number): string {
  return String(value)
}

function pair(ms: number, large: number, largeUnit: string, small: number, smallUnit: string): string {
  const whole = Math.floor(ms / large)
  const rest = Math.floor((ms % large) / small)
  return rest ? `${whole}${largeUnit} ${rest}${smallUnit}` : `${whole}${largeUnit}`
}

/** Only whole seconds: for what counts down before a reader's eyes. */
export function countdown(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / SECOND))
  if (seconds < 60) return `${seconds}s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${String(seconds % 60).padStart(2, '0')}s`
  return duration(seconds * SECOND)
}

export function relative(at: number, now: number): string {
  const ms = now - at
  if (Math.abs(ms) < SECOND) return 'now'
  const text = coarse(Math.abs(ms))
  return ms > 0 ? `${text} ago` : `in ${text}`
}

function coarse(ms: number): string {
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)}s`
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)}m`
  if (ms < DAY) return `${Math.floor(ms / HOUR)}h`
  return `${Math.floor(ms / DAY)}d`
}

const EXACT = new Intl.DateTimeFormat('en-GB', {
  year: 'numeric',
  month: 'short',
  day: '2-digit',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  fractionalSecondDigits: 3,
  timeZoneName: 'short',
})
const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' })
const CLOCK_MS = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3 })

export const exactTime = (at: number) => EXACT.format(at)
export const clockTime = (at: number) => CLOCK.format(at)
export const clockTimeMs = (at: number) => CLOCK_MS.format(at)

const COUNT = new Intl.NumberFormat('en-US')
export const count = (value: number) => COUNT.format(value)

/** `12.4k`, `1.2M`: for places with little room. */
export function shortCount(value: number): string {
  if (value < 10_000) return count(value)
  if (value < 1_000_000) return `${trim(Math.floor(value / 100) / 10)}k`
  return `${trim(Math.floor(value / 100_000) / 10)}M`
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`
}

export function bytes(value: number): string {
  if (value < 1024) return `${value} B`
  const units = ['KiB', 'MiB', 'GiB', 'TiB']
  let size = value
  let unit = -1
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024
    unit++
  }
  return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`
}

/** `attempts_exhausted` as words. */
export const words = (name: string) => name.replaceAll('_', ' ')

/** A value that a job wrote, in one line. */
export function inline(value: unknown, most = 120): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
  return text.length > most ? `${text.slice(0, most)}…` : text
}
