/** One stream of changes for the whole page: what it names is asked for again, as often as that is cheap. */
import type { InfiniteData, Query } from '@tanstack/react-query'
import { useEffect } from 'react'
import { createStore } from '@/lib/store'
import { Pace } from '@/lib/pace'
import { followChanges, type JobChanges } from './jobs'
import { costOf, queries } from './queries'

export const live = createStore<{ connected: boolean; paused: boolean }>({ connected: false, paused: false })
/** Counts changes that were held back while paused, or while more is loaded than is asked for again by itself; infinite if nobody counts. */
export const heldBack = createStore(0)

/** Pages of a list that are asked for again with each change. */
const MOST_PAGES = 3
const SHORTEST_PAUSE_MS = 1_000
/** The part of a server's time that one open page may take with its questions: 1 in this many. */
const SHARE = 50
const LONGEST_PAUSE_MS = 60_000

let users = 0
let stop: (() => void) | undefined
let wasConnected = false

/** Keeps the stream open while a view is shown. */
export function useLive(): void {
  useEffect(() => {
    if (users++ === 0) stop = followChanges(changed, setConnected)
    return () => {
      if (--users > 0) return
      stop?.()
      wasConnected = false
      live.set({ ...live.get(), connected: false })
    }
  }, [])
}

function setConnected(connected: boolean): void {
  live.set({ ...live.get(), connected })
  // What changed while no connection was open is not told.
  if (connected && wasConnected) void queries.invalidateQueries()
  wasConnected ||= connected
}

export function setPaused(paused: boolean): void {
  live.set({ ...live.get(), paused })
  if (!paused) showHeldBack()
}

export function showHeldBack(): void {
  if (heldBack.get() === 0) return
  heldBack.set(0)
  void queries.invalidateQueries({ queryKey: LISTS })
}

const LISTS = ['jobs', 'list']
/** Answers for which the server reads a whole log. */
const EXPENSIVE = new Set<unknown>(['explain', 'budget', 'what-if'])

const pace = new Pace(cost => Math.min(LONGEST_PAUSE_MS, Math.max(SHORTEST_PAUSE_MS, cost * SHARE)))

/** While nobody sees the page it asks for nothing, and then for all of it. */
let missed = false
document.addEventListener('visibilitychange', () => {
  if (document.hidden || !missed) return
  missed = false
  changed({ ids: [], more: true, counts: undefined })
})

function changed({ ids, more, counts }: JobChanges): void {
  if (counts) queries.setQueryData(['jobs', 'counts'], counts)
  if (ids.length === 0 && !more) return
  if (document.hidden) {
    missed = true
    return
  }
  if (live.get().paused || longListIsShown()) heldBack.set(heldBack.get() + (more ? Infinity : ids.length))
  else pace.run('list', costOf('list'), () => void queries.invalidateQueries({ queryKey: LISTS }))
  const shown = new Set(
    queries
      .getQueryCache()
      .findAll({ queryKey: ['job'], type: 'active' })
      .map(query => query.queryKey[1] as string),
  )
  for (const id of shown) if (more || ids.includes(id)) jobChanged(id)
}

function jobChanged(id: string): void {
  const again = (expensive: boolean) => () =>
    void queries.invalidateQueries({ queryKey: ['job', id], predicate: query => EXPENSIVE.has(query.queryKey[2]) === expensive })
  pace.run(id, 0, again(false))
  pace.run(`${id} explain`, costOf(id), again(true))
}

function longListIsShown(): boolean {
  const lists = queries.getQueryCache().findAll({ queryKey: LISTS, type: 'active' }) as Query<InfiniteData<unknown>>[]
  return lists.some(({ state }) => (state.data?.pages?.length ?? 0) > MOST_PAGES)
}
