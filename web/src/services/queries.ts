/** What views ask for, with keys by which live changes make them ask again. */
import { infiniteQueryOptions, QueryClient, queryOptions } from '@tanstack/react-query'
import { onReturn } from './connection'
import { fetchOverview, fetchWorkers } from './fleet'
import { fetchAttempts, fetchItems, fetchJob, fetchOutputs, fetchPlan } from './job'
import { fetchCounts, fetchJobs, fetchMe } from './jobs'
import { fetchLogs } from './logs'
import { ENDED, type JobFilter, type Plan } from './model'
import { Problem, Unreachable } from './problem'
import { fetchBudgetDraws, fetchExplanation } from './why'

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // The connection asks again by itself; a refusal stays one.
      retry: (failures, error) => !(error instanceof Problem && error.status < 500) && !(error instanceof Unreachable) && failures < 2,
      staleTime: 5_000,
      refetchOnWindowFocus: false,
    },
  },
})
onReturn(() => void queries.invalidateQueries())

const costs = new Map<string, number>()

/** Milliseconds that the last answer took, of a job's explanation or of the list. */
export const costOf = (what: string) => costs.get(what) ?? 0

async function timed<T>(what: string, answer: () => Promise<T>): Promise<T> {
  const began = performance.now()
  const result = await answer()
  costs.set(what, performance.now() - began)
  return result
}

export const meQuery = () => queryOptions({ queryKey: ['me'], queryFn: fetchMe, staleTime: Infinity })
export const countsQuery = () => queryOptions({ queryKey: ['jobs', 'counts'], queryFn: fetchCounts })
export const jobsQuery = (filter: JobFilter) =>
  infiniteQueryOptions({
    queryKey: ['jobs', 'list', filter],
    queryFn: ({ pageParam, signal }) => timed('list', () => fetchJobs(filter, pageParam, signal)),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: page => page.next ?? undefined,
    placeholderData: previous => previous,
  })
export const jobQuery = (id: string) => queryOptions({ queryKey: ['job', id, 'status'], queryFn: () => fetchJob(id) })
export const explanationQuery = (id: string, step?: string) =>
  queryOptions({
    queryKey: ['job', id, 'explain', step ?? ''],
    queryFn: () => timed(id, () => fetchExplanation(id, step)),
    placeholderData: previous => previous,
    // Its sentences tell times from now.
    refetchInterval: ({ state }) => (state.data && !ENDED.has(state.data.state) ? Math.max(15_000, costOf(id) * 50) : false),
  })
export const budgetQuery = (id: string) => queryOptions({ queryKey: ['job', id, 'budget'], queryFn: () => fetchBudgetDraws(id) })
export const planQuery = (id: string) => queryOptions({ queryKey: ['plan', id], queryFn: () => fetchPlan(id), staleTime: Infinity })
export const itemsQuery = (id: string, step: string, datacenter: string | undefined, state: string | undefined) =>
  infiniteQueryOptions({
    queryKey: ['job', id, 'items', step, datacenter ?? '', state ?? ''],
    queryFn: ({ pageParam }) => fetchItems(id, step, { datacenter, state, from: pageParam, limit: 100 }),
    initialPageParam: 0,
    getNextPageParam: page => page.next ?? undefined,
  })
export const attemptsQuery = (id: string, plan: Plan) =>
  infiniteQueryOptions({
    queryKey: ['attempts', id],
    queryFn: ({ pageParam }) => fetchAttempts(id, plan, pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: page => page.next ?? undefined,
  })
export const outputsQuery = (id: string) =>
  infiniteQueryOptions({
    queryKey: ['job', id, 'outputs'],
    queryFn: ({ pageParam }) => fetchOutputs(id, pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: page => page.next ?? undefined,
  })
export const logsQuery = (id: string, step: string | undefined) =>
  infiniteQueryOptions({
    queryKey: ['job', id, 'logs', step ?? ''],
    queryFn: ({ pageParam }) => fetchLogs(id, step, pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: page => page.next ?? undefined,
  })
export const workersQuery = () => queryOptions({ queryKey: ['workers'], queryFn: fetchWorkers, refetchInterval: 5_000 })
export const overviewQuery = (minutes: number) =>
  queryOptions({
    queryKey: ['overview', minutes],
    queryFn: () => fetchOverview(minutes),
    refetchInterval: 10_000,
    placeholderData: previous => previous,
  })
