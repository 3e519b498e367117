/** One stream of changes for the whole page: what it names is asked for again. */
import { useEffect } from 'react'
import { createStore } from '@/lib/store'
import { followChanges, type JobChanges } from './jobs'
import { queries } from './queries'

export const live = createStore<{ connected: boolean; paused: boolean }>({ connected: false, paused: false })
/** Counts changes that were held back while paused. */
export const heldBack = createStore(0)

let users = 0
let stop: (() => void) | undefined

/** Keeps the stream open while a view is shown. */
export function useLive(): void {
  useEffect(() => {
    if (users++ === 0) stop = followChanges(changed, connected => live.set({ ...live.get(), connected }))
    return () => {
      if (--users > 0) return
      stop?.()
      live.set({ ...live.get(), connected: false })
    }
  }, [])
}

export function setPaused(paused: boolean): void {
  live.set({ ...live.get(), paused })
  if (paused || heldBack.get() === 0) return
  heldBack.set(0)
  void queries.invalidateQueries({ queryKey: ['jobs', 'list'] })
}

function changed({ ids, more, counts }: JobChanges): void {
  queries.setQueryData(['jobs', 'counts'], counts)
  if (live.get().paused) heldBack.set(heldBack.get() + ids.length)
  else void queries.invalidateQueries({ queryKey: ['jobs', 'list'] })
  if (more) void queries.invalidateQueries({ queryKey: ['job'] })
  else for (const id of ids) void queries.invalidateQueries({ queryKey: ['job', id] })
}
