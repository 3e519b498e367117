import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from '@tanstack/react-router'
import { Empty } from '@/components/ui'
import { choice, choices, flag, number, optional, text, texts } from '@/lib/search'
import { JOB_STATES } from '@/services/model'
import { Shell } from './shell'

const root = createRootRoute({
  component: Shell,
  notFoundComponent: () => <Empty title="There is no such page">The views are Overview, Jobs and Fleet.</Empty>,
})

const index = createRoute({
  getParentRoute: () => root,
  path: '/',
  beforeLoad: () => {
    throw redirect({ to: '/overview', replace: true })
  },
})

const overview = createRoute({
  getParentRoute: () => root,
  path: '/overview',
  validateSearch: (raw: Record<string, unknown>) => optional({ minutes: number(raw, 'minutes') }),
  component: lazyRouteComponent(() => import('@/views/overview/overview')),
})

const jobs = createRoute({
  getParentRoute: () => root,
  path: '/jobs',
  validateSearch: (raw: Record<string, unknown>) =>
    optional({
      state: choices(raw, 'state', JOB_STATES),
      name: text(raw, 'name'),
      label: text(raw, 'label'),
      text: text(raw, 'text'),
      reason: text(raw, 'reason'),
      since: number(raw, 'since'),
      until: number(raw, 'until'),
      /** The row that the keyboard is at. */
      at: text(raw, 'at'),
    }),
  component: lazyRouteComponent(() => import('@/views/jobs/jobs')),
})

export const JOB_TABS = ['graph', 'timeline', 'why', 'events', 'logs', 'data', 'file'] as const
export type JobTab = (typeof JOB_TABS)[number]

export const jobRoute = createRoute({
  getParentRoute: () => root,
  path: '/jobs/$id',
  validateSearch: (raw: Record<string, unknown>) =>
    optional({
      tab: choice(raw, 'tab', JOB_TABS),
      step: text(raw, 'step'),
      /** Of the step: its number, or `!` and `~` for its fallback and compensation. */
      item: text(raw, 'item'),
      dc: text(raw, 'dc'),
      state: text(raw, 'state'),
      text: text(raw, 'text'),
      log: text(raw, 'log'),
      find: text(raw, 'find'),
      follow: flag(raw, 'follow'),
      from: number(raw, 'from'),
      to: number(raw, 'to'),
      idle: flag(raw, 'idle'),
      after: number(raw, 'after'),
      seq: number(raw, 'seq'),
      with: texts(raw, 'with'),
    }),
  component: lazyRouteComponent(() => import('@/views/job/job')),
})

const fleet = createRoute({
  getParentRoute: () => root,
  path: '/fleet',
  validateSearch: (raw: Record<string, unknown>) => optional({ text: text(raw, 'text'), state: text(raw, 'state'), at: text(raw, 'at') }),
  component: lazyRouteComponent(() => import('@/views/fleet/fleet')),
})

export const router = createRouter({
  routeTree: root.addChildren([index, overview, jobs, jobRoute, fleet]),
  defaultPreload: 'intent',
  scrollRestoration: false,
})

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}
