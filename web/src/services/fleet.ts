/** Workers, and the statistics of a server. */
import { body, client, type Wire } from './client'
import type { Overview, Worker } from './model'

export async function fetchWorkers(): Promise<Worker[]> {
  return body(await client.GET('/v1/workers')).workers.map(worker)
}

function worker(wire: Wire['Worker']): Worker {
  const { cpu_used: cpuUsed, memory_bytes: memory, memory_used: memoryUsed, lease_left_ms: leaseLeft, ...same } = wire
  return { ...same, cpuUsed, memory, memoryUsed, lostAt: Date.now() + leaseLeft }
}

export async function drain(name: string, back: boolean): Promise<void> {
  const params = { path: { name } }
  if (back) await client.POST('/v1/workers/{name}/undrain', { params })
  else await client.POST('/v1/workers/{name}/drain', { params })
}

export async function fetchOverview(minutes: number): Promise<Overview> {
  const wire = body(await client.GET('/v1/overview', { params: { query: { minutes } } }))
  return {
    from: wire.from_ms,
    bucket: wire.bucket_ms,
    since: wire.since_ms,
    scope: wire.scope,
    buckets: wire.throughput.map(({ at_ms: at, lateness_p50_ms: latenessP50, lateness_p99_ms: latenessP99, ...same }) => ({
      ...same,
      at,
      latenessP50,
      latenessP99,
    })),
    queue: wire.queue,
    failing: wire.top_failing_steps.map(({ job_name: jobName, last_error: lastError, last_job: lastJob, ...same }) => ({
      ...same,
      jobName,
      lastError,
      lastJob,
    })),
    budgets: wire.budgets_near_end,
    grid: { workers: wire.grid.workers, items: wire.grid.items.map(({ job, item: name, cells }) => ({ job, name, cells })) },
  }
}
