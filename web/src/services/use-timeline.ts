/** The events of a job folded into rows, and folded on as it goes on. */
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { fetchEvents } from './job'
import { TimelineFold } from './timeline'

/** Longer logs are shown by attempt instead. */
const MOST_EVENTS = 8_000

export interface Folded {
  fold: TimelineFold
  /** The log is longer than what is folded. */
  tooLong: boolean
}

export function useTimelineFold(id: string): { data: Folded | undefined; error: Error | null } {
  const client = useQueryClient()
  const [fold] = useState(() => new Map<string, TimelineFold>())
  const query = useQuery({
    queryKey: ['job', id, 'timeline'],
    queryFn: async (): Promise<Folded> => {
      const of = fold.get(id) ?? new TimelineFold()
      fold.set(id, of)
      for (;;) {
        const events = await fetchEvents(id, of.seq)
        for (const event of events) of.add(event)
        if (events.length === 0) break
        if (of.seq >= MOST_EVENTS) return { fold: of, tooLong: true }
        if (events.length < 1000) break
      }
      return { fold: of, tooLong: false }
    },
    structuralSharing: false,
  })
  // Whoever looks again begins with what is folded, so nothing of it may be thrown away half-way.
  useEffect(() => () => void client.removeQueries({ queryKey: ['job', id, 'timeline'] }), [client, id])
  return { data: query.data, error: query.error }
}
