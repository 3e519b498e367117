/** Logs of attempts, byte for byte. */
import { body, client, send, url } from './client'
import type { Log, Page, Role } from './model'
import { pieces } from './stream'

export async function fetchLogs(id: string, step: string | undefined, cursor: string | undefined): Promise<Page<Log>> {
  const page = body(await client.GET('/v1/jobs/{id}/logs', { params: { path: { id }, query: { step, cursor, limit: 500 } } }))
  return { rows: page.logs.map(log => ({ ...log, role: log.role as Role })), next: page.next }
}

function address(id: string, log: Pick<Log, 'step' | 'name'>, query: Record<string, number | boolean>): URL {
  return url(`/v1/jobs/${id}/logs/${encodeURIComponent(log.step)}/${encodeURIComponent(log.name)}`, query)
}

/** The text from byte `offset` on, in pieces; with `follow` until the job is over. */
export async function* readLog(
  id: string,
  log: Pick<Log, 'step' | 'name'>,
  offset: number,
  follow: boolean,
  signal: AbortSignal,
): AsyncGenerator<string> {
  const query: Record<string, number | boolean> = follow ? { offset, follow } : { offset }
  yield* pieces(await send(new Request(address(id, log, query), { signal, cache: 'no-store' })))
}

/** The whole log as a file. */
export async function downloadLog(id: string, log: Pick<Log, 'step' | 'name'>): Promise<void> {
  const blob = await (await send(new Request(address(id, log, {})))).blob()
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([blob], { type: 'application/octet-stream' }))
  link.download = `${log.name}.log`
  link.click()
  URL.revokeObjectURL(link.href)
}
