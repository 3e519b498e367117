import type { ButtonHTMLAttributes, ComponentProps, ReactNode, SelectHTMLAttributes } from 'react'
import { plainText } from '@/lib/ansi'
import { Icon, type IconName } from './icons'

type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement> & { icon?: IconName; look?: 'plain' | 'primary' | 'danger' | 'quiet' }

const LOOKS = {
  plain: 'border-line-strong bg-surface text-text hover:bg-hover',
  primary: 'border-accent bg-accent text-on-accent hover:brightness-110',
  danger: 'border-failed bg-failed text-surface hover:brightness-110',
  quiet: 'border-transparent text-muted hover:bg-hover hover:text-text',
}

export function Button({ icon, look = 'plain', className = '', children, ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      className={`inline-flex h-8 items-center justify-center gap-1.5 rounded-md border px-2.5 font-medium whitespace-nowrap disabled:opacity-45 disabled:hover:brightness-100 ${LOOKS[look]} ${className}`}
      {...rest}
    >
      {icon && <Icon name={icon} />}
      {children}
    </button>
  )
}

export function IconButton({ icon, label, ...rest }: ButtonProps & { icon: IconName; label: string }) {
  return <Button look="quiet" icon={icon} aria-label={label} title={label} {...rest} className={`w-8 px-0! ${rest.className ?? ''}`} />
}

const FIELD = 'h-8 rounded-md border border-line-strong bg-surface px-2 text-text placeholder:text-muted'

export function TextInput({ className = '', ...rest }: ComponentProps<'input'>) {
  return <input spellCheck={false} autoComplete="off" className={`${FIELD} ${className}`} {...rest} />
}

export function Select({ className = '', ...rest }: SelectHTMLAttributes<HTMLSelectElement>) {
  return <select className={`${FIELD} ${className}`} {...rest} />
}

export function Chip({ children, title }: { children: ReactNode; title?: string }) {
  return (
    <span
      title={title}
      className="inert inline-flex max-w-full items-center rounded border border-line bg-sunken px-1.5 text-[0.92em] text-muted"
    >
      {children}
    </span>
  )
}

export function Kbd({ children }: { children: ReactNode }) {
  return (
    <kbd className="inline-block min-w-5 rounded border border-line-strong bg-sunken px-1 text-center text-[0.85em] text-muted">
      {children}
    </kbd>
  )
}

export function Empty({ title, children, icon = 'search' }: { title: string; children?: ReactNode; icon?: IconName }) {
  return (
    <div className="flex flex-col items-center gap-2 px-6 py-14 text-center">
      <Icon name={icon} size={26} className="text-muted" />
      <p className="text-[1.1em] font-medium">{title}</p>
      {children && <div className="max-w-prose text-muted">{children}</div>}
    </div>
  )
}

export function Loading({ what }: { what: string }) {
  return (
    <p role="status" className="live-dot px-6 py-10 text-center text-muted">
      Loading {what} …
    </p>
  )
}

export function Failure({ error, retry }: { error: Error; retry?: () => void }) {
  return (
    <div role="alert" className="m-4 flex items-center gap-3 rounded-md bg-failed-soft px-3 py-2 text-failed">
      <Icon name="stuck" />
      <span className="inert grow">{error.message}</span>
      {retry && <Button onClick={retry}>Try again</Button>}
    </div>
  )
}

/** Something that a job wrote: text and nothing but text. */
export function JobText({ children, className = '', title }: { children: string; className?: string; title?: string }) {
  return (
    <bdi className={`inert ${className}`} title={title}>
      {plainText(children)}
    </bdi>
  )
}

/** `explain` marks names with backquotes. */
export function Sentence({ children }: { children: string }) {
  const parts = plainText(children).split('`')
  return (
    <span className="inert">
      {parts.map((part, i) =>
        i % 2 === 1 ? (
          <code key={i} className="rounded bg-sunken px-1">
            {part}
          </code>
        ) : (
          part
        ),
      )}
    </span>
  )
}

interface SegmentsProps<T extends string> {
  label: string
  options: { value: T; label: ReactNode }[]
  value: T
  onChange: (value: T) => void
}

export function Segments<T extends string>({ label, options, value, onChange }: SegmentsProps<T>) {
  return (
    <div role="group" aria-label={label} className="inline-flex h-8 rounded-md border border-line-strong bg-surface p-0.5">
      {options.map(option => (
        <button
          key={option.value}
          type="button"
          aria-pressed={option.value === value}
          onClick={() => onChange(option.value)}
          className="rounded px-2 text-muted aria-pressed:bg-accent-soft aria-pressed:font-medium aria-pressed:text-accent"
        >
          {option.label}
        </button>
      ))}
    </div>
  )
}

export function Switch({ on, onChange, children }: { on: boolean; onChange: (on: boolean) => void; children: ReactNode }) {
  return (
    <button
      type="button"
      role="switch"
      aria-checked={on}
      onClick={() => onChange(!on)}
      className="inline-flex h-8 items-center gap-2 rounded-md px-1.5 text-muted hover:text-text"
    >
      <span
        className={`flex h-4 w-7 items-center rounded-full border px-0.5 ${on ? 'justify-end border-accent bg-accent' : 'border-line-strong bg-sunken'}`}
      >
        <span className={`size-2.5 rounded-full ${on ? 'bg-on-accent' : 'bg-muted'}`} />
      </span>
      {children}
    </button>
  )
}
