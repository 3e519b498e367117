import { useNavigate, useParams, useSearch } from '@tanstack/react-router'
import type { jobRoute } from '@/app/router'

export type JobSearch = (typeof jobRoute)['types']['fullSearchSchema']

export function useJobId(): string {
  return useParams({ from: '/jobs/$id' }).id
}

/** The state of a job's page as it stands in the address. */
export function useJobSearch(): [JobSearch, (change: Partial<JobSearch>) => void] {
  const search = useSearch({ from: '/jobs/$id' })
  const navigate = useNavigate({ from: '/jobs/$id' })
  return [search, change => void navigate({ search: before => ({ ...before, ...change }), replace: true })]
}

const SUFFIX = { item: '', fallback: '!', compensation: '~' }

/** `eu-west/index[2]`, `publish!`: how explanations name an item. */
export function itemLabel(of: {
  datacenter?: string | null
  step: string
  role?: keyof typeof SUFFIX
  index?: number
  fanOut?: boolean
}): string {
  const place = of.datacenter ? `${of.datacenter}/` : ''
  const index = of.fanOut && (of.role ?? 'item') === 'item' && of.index !== undefined ? `[${of.index}]` : ''
  return `${place}${of.step}${SUFFIX[of.role ?? 'item']}${index}`
}
