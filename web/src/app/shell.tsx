import { useQuery } from '@tanstack/react-query'
import { Link, Outlet, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { Dialog } from '@/components/dialog'
import { Icon, type IconName } from '@/components/icons'
import { Countdown } from '@/components/time'
import { Button, IconButton, Kbd, Loading, Failure } from '@/components/ui'
import { useStore } from '@/lib/store'
import { connection, retryNow } from '@/services/connection'
import { live } from '@/services/live'
import { meQuery, queries } from '@/services/queries'
import { session, signOut } from '@/services/session'
import { groups, useShortcuts } from './shortcuts'
import { SignIn } from './sign-in'
import { nextTheme, theme } from './theme'

export function Shell() {
  const { refused } = useStore(session)
  const me = useQuery({ ...meQuery(), enabled: refused === null })
  const [help, setHelp] = useState(false)
  const navigate = useNavigate()
  useShortcuts('Everywhere', [
    { keys: '?', about: 'Show these keys', run: () => setHelp(true) },
    { keys: 'g o', about: 'Go to the overview', run: () => void navigate({ to: '/overview' }) },
    { keys: 'g j', about: 'Go to the jobs', run: () => void navigate({ to: '/jobs' }) },
    { keys: 'g f', about: 'Go to the fleet', run: () => void navigate({ to: '/fleet' }) },
    { keys: 't', about: 'Light, dark, or as the system has it', run: nextTheme },
  ])
  if (refused !== null) return <SignIn refused={refused} />
  return (
    <>
      <a href="#main" className="sr-only focus:not-sr-only focus:absolute focus:z-50 focus:bg-surface focus:p-2">
        Skip to content
      </a>
      <TopBar onHelp={() => setHelp(true)} />
      <AwayBanner />
      <main id="main" tabIndex={-1} className="flex min-h-0 grow flex-col outline-none">
        {me.data ? <Outlet /> : me.error ? <AwayOr error={me.error} retry={() => void me.refetch()} /> : <Loading what="the dashboard" />}
      </main>
      <HelpDialog open={help} onClose={() => setHelp(false)} />
    </>
  )
}

function AwayOr({ error, retry }: { error: Error; retry: () => void }) {
  return useStore(connection).away ? <Loading what="as soon as the server answers" /> : <Failure error={error} retry={retry} />
}

const VIEWS: { to: string; label: string; icon: IconName }[] = [
  { to: '/overview', label: 'Overview', icon: 'overview' },
  { to: '/jobs', label: 'Jobs', icon: 'jobs' },
  { to: '/fleet', label: 'Fleet', icon: 'fleet' },
]

function TopBar({ onHelp }: { onHelp: () => void }) {
  const { data: me } = useQuery(meQuery())
  const chosen = useStore(theme)
  return (
    <header className="sticky top-0 z-30 flex h-12 shrink-0 items-center gap-1 border-b border-line bg-surface px-2 sm:gap-2 sm:px-4">
      <Link to="/overview" className="mr-1 flex items-center gap-2 font-semibold tracking-tight sm:mr-4" aria-label="Steadfast: overview">
        <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden>
          <rect width="32" height="32" rx="7" fill="var(--accent)" />
          <path
            d="M7 21h5l3-11 4 15 3-9h3"
            fill="none"
            stroke="var(--on-accent)"
            strokeWidth="2.6"
            strokeLinecap="round"
            strokeLinejoin="round"
          />
        </svg>
        <span className="hidden text-[1.08em] sm:inline">Steadfast</span>
      </Link>
      <nav aria-label="Views" className="flex gap-0.5">
        {VIEWS.map(view => (
          <Link
            key={view.to}
            to={view.to}
            className="flex h-8 items-center gap-1.5 rounded-md px-2 font-medium text-muted hover:bg-hover hover:text-text data-[status=active]:bg-accent-soft data-[status=active]:text-accent sm:px-2.5"
          >
            <Icon name={view.icon} className="hidden sm:block" />
            {view.label}
          </Link>
        ))}
      </nav>
      <span className="grow" />
      <LiveMark />
      <IconButton icon={chosen === 'dark' ? 'moon' : chosen === 'light' ? 'sun' : 'auto'} label={`Theme: ${chosen}`} onClick={nextTheme} />
      <IconButton icon="keyboard" label="Keyboard shortcuts" onClick={onHelp} className="hidden! sm:inline-flex!" />
      {me?.auth === 'required' && (
        <>
          <span className="hidden max-w-40 truncate text-muted md:inline" title={scopes(me.may)}>
            {me.name ?? 'a token'}
          </span>
          <IconButton icon="out" label="Sign out" onClick={() => (queries.clear(), signOut())} />
        </>
      )}
    </header>
  )
}

function scopes(may: { read: boolean; submit: boolean; admin: boolean }): string {
  const granted = Object.entries(may).filter(([, allowed]) => allowed)
  return `may ${granted.map(([scope]) => scope).join(', ')}`
}

function LiveMark() {
  const { connected, paused } = useStore(live)
  const { away } = useStore(connection)
  const text = away ? 'server away' : paused ? 'paused' : connected ? 'live' : 'not live'
  const color = away ? 'bg-failed-solid' : paused ? 'bg-paused-solid' : connected ? 'bg-succeeded-solid live-dot' : 'bg-idle-solid'
  return (
    <span role="status" className="flex items-center gap-1.5 px-1 text-muted" data-live={text}>
      <span className={`size-2 rounded-full ${color}`} />
      <span className="sr-only sm:not-sr-only">{text}</span>
    </span>
  )
}

function AwayBanner() {
  const state = useStore(connection)
  if (!state.away) return null
  return (
    <div role="alert" className="flex items-center gap-3 border-b border-line bg-waiting-soft px-4 py-1.5 text-waiting">
      <Icon name="interrupted" />
      <span className="grow">
        The server does not answer. What you see is from before; trying again in <Countdown to={state.retryAt} late="a moment" />.
      </span>
      <Button onClick={retryNow}>Now</Button>
    </div>
  )
}

function HelpDialog({ open, onClose }: { open: boolean; onClose: () => void }) {
  const all = useStore(groups)
  return (
    <Dialog title="Keyboard" open={open} onClose={onClose}>
      <div className="grid gap-5 sm:grid-cols-2">
        {all.map(group => (
          <section key={group.title}>
            <h3 className="mb-1.5 font-semibold">{group.title}</h3>
            <dl className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-1">
              {group.shortcuts.map(shortcut => (
                <div key={shortcut.keys} className="contents">
                  <dt className="flex gap-1">
                    {shortcut.keys.split(' ').map((key, i) => (
                      <Kbd key={i}>{key}</Kbd>
                    ))}
                  </dt>
                  <dd className="text-muted">{shortcut.about}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  )
}
