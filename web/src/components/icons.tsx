/** Drawn here, because nothing may come from elsewhere. Each state has a shape of its own: colour alone tells nothing to many readers. */
import type { ReactNode } from 'react'

const circle = <circle cx="8" cy="8" r="6.25" />

const SHAPES = {
  pending: <circle cx="8" cy="8" r="6.25" strokeDasharray="2.2 2.7" />,
  running: (
    <>
      {circle}
      <path d="M6.4 5.2 11 8l-4.6 2.8z" fill="currentColor" stroke="none" />
    </>
  ),
  paused: (
    <>
      {circle}
      <path d="M6.3 5.5v5M9.7 5.5v5" strokeWidth="1.8" />
    </>
  ),
  succeeded: (
    <>
      {circle}
      <path d="m5.2 8.2 2 2 3.6-4.2" />
    </>
  ),
  partial: (
    <>
      {circle}
      <path d="M8 1.75a6.25 6.25 0 0 1 0 12.5z" fill="currentColor" stroke="none" />
    </>
  ),
  failed: (
    <>
      <path d="M5.4 1.75h5.2l3.65 3.65v5.2l-3.65 3.65H5.4L1.75 10.6V5.4z" />
      <path d="m5.8 5.8 4.4 4.4m0-4.4-4.4 4.4" />
    </>
  ),
  cancelled: (
    <>
      {circle}
      <path d="m3.7 12.3 8.6-8.6" />
    </>
  ),
  backing_off: (
    <>
      {circle}
      <path d="M8 4.5V8l2.4 1.6" />
    </>
  ),
  waiting: <path d="M4 1.75h8M4 14.25h8M5 1.75v2.5L8 8l3-3.75v-2.5M5 14.25v-2.5L8 8l3 3.75v2.5" />,
  ready: <circle cx="8" cy="8" r="6.25" strokeDasharray="9.8 3" />,
  skipped: <path d="M2.5 4.5 7 8l-4.5 3.5zM7.5 4.5 12 8l-4.5 3.5zM13.5 4.5v7" />,
  awaiting_callback: <path d="M1.75 9.5h3.5l1 2h3.5l1-2h3.5M1.75 9.5v4h12.5v-4M8 1.75v5.5M5.6 5 8 7.4 10.4 5" />,
  interrupted: (
    <>
      <path d="M2 8h4M10 8h4M6 5.2v5.6M10 5.2v5.6" />
      <path d="m7.4 3 1.2-1.5M7.4 13l1.2 1.5" />
    </>
  ),
  stuck: (
    <>
      <path d="M8 1.9 14.6 13.6H1.4z" />
      <path d="M8 6.4v3.2M8 11.3v.6" />
    </>
  ),
  connected: (
    <>
      <path d="M5 8.2 7.2 10.4 11.2 5.8" />
      <rect x="1.75" y="1.75" width="12.5" height="12.5" rx="3" />
    </>
  ),
  draining: (
    <>
      <rect x="1.75" y="1.75" width="12.5" height="12.5" rx="3" />
      <path d="M8 4.5v6M5.5 8.2 8 10.8l2.5-2.6" />
    </>
  ),
  quarantined: (
    <>
      <path d="M8 1.75 13.5 4v4c0 3.2-2.3 5.4-5.5 6.25C4.8 13.4 2.5 11.2 2.5 8V4z" />
      <path d="M8 5v3.4M8 10.2v.6" />
    </>
  ),
  away: (
    <>
      <rect x="1.75" y="1.75" width="12.5" height="12.5" rx="3" strokeDasharray="2.5 2.2" />
      <path d="M5.5 8h5" />
    </>
  ),
  search: (
    <>
      <circle cx="7" cy="7" r="4.75" />
      <path d="m10.6 10.6 3.4 3.4" />
    </>
  ),
  close: <path d="m4 4 8 8m0-8-8 8" />,
  chevron: <path d="m6 3.5 4.5 4.5L6 12.5" />,
  down: <path d="M3.5 6 8 10.5 12.5 6" />,
  sun: (
    <>
      <circle cx="8" cy="8" r="3" />
      <path d="M8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.2 1.2M11.8 11.8 13 13M13 3l-1.2 1.2M4.2 11.8 3 13" />
    </>
  ),
  moon: <path d="M13.5 9.6A5.9 5.9 0 0 1 6.4 2.5a5.9 5.9 0 1 0 7.1 7.1z" />,
  auto: (
    <>
      {circle}
      <path d="M8 1.75v12.5" />
      <path d="M8 1.75a6.25 6.25 0 0 1 0 12.5z" fill="currentColor" stroke="none" opacity=".35" />
    </>
  ),
  keyboard: (
    <>
      <rect x="1.25" y="3.5" width="13.5" height="9" rx="2" />
      <path d="M4 6.5h.5M7.8 6.5h.5M11.5 6.5h.5M5 9.7h6" />
    </>
  ),
  out: <path d="M6.5 2.5h-4v11h4M9.5 5 12.5 8l-3 3M12 8H6" />,
  retry: <path d="M13.2 8A5.2 5.2 0 1 1 11.6 4.2L13.4 6M13.4 2.5V6H9.9" />,
  play: <path d="M4.5 2.8 12.5 8l-8 5.2z" />,
  pause: <path d="M5.5 3v10M10.5 3v10" strokeWidth="2.2" />,
  stop: <rect x="3.5" y="3.5" width="9" height="9" rx="1.5" />,
  download: <path d="M8 2v8M4.8 7 8 10.2 11.2 7M2.5 13.5h11" />,
  copy: (
    <>
      <rect x="5.5" y="5.5" width="8.5" height="8.5" rx="1.5" />
      <path d="M10.5 5.5v-2A1.5 1.5 0 0 0 9 2H3.5A1.5 1.5 0 0 0 2 3.5V9a1.5 1.5 0 0 0 1.5 1.5h2" />
    </>
  ),
  filter: <path d="M1.75 3h12.5L9.5 8.6v4.2l-3 1.4V8.6z" />,
  overview: <path d="M2 13.5h12M3.5 11V8M7 11V3.5M10.5 11V6M13.5 11V9" />,
  jobs: <path d="M2 4h1M2 8h1M2 12h1M5.5 4H14M5.5 8H14M5.5 12H14" />,
  fleet: (
    <>
      <rect x="2" y="2.5" width="12" height="4.5" rx="1.2" />
      <rect x="2" y="9" width="12" height="4.5" rx="1.2" />
      <path d="M4.5 4.75h.5M4.5 11.25h.5" />
    </>
  ),
  plus: <path d="M8 2.5v11M2.5 8h11" />,
  minus: <path d="M2.5 8h11" />,
  fit: <path d="M2 5.5V2h3.5M10.5 2H14v3.5M14 10.5V14h-3.5M5.5 14H2v-3.5" />,
  goal: <path d="M3.5 14.5v-13M3.5 2.5h9l-2.2 3 2.2 3h-9" />,
} satisfies Record<string, ReactNode>

export type IconName = keyof typeof SHAPES

export function isIcon(name: string): name is IconName {
  return name in SHAPES
}

interface Props {
  name: IconName
  size?: number
  /** Without one it is decoration, and silent to a screen reader. */
  label?: string
  className?: string
}

export function Icon({ name, size = 14, label, className = '' }: Props) {
  return (
    <svg
      viewBox="0 0 16 16"
      width={size}
      height={size}
      fill="none"
      stroke="currentColor"
      strokeWidth="1.5"
      strokeLinecap="round"
      strokeLinejoin="round"
      className={`shrink-0 ${className}`}
      role={label ? 'img' : undefined}
      aria-label={label}
      aria-hidden={label ? undefined : true}
    >
      {SHAPES[name]}
    </svg>
  )
}
