/** What went wrong with a request. */

export interface Mistake {
  path: string
  message: string
  help: string | null
}

/** The server refused it, with a reason (RFC 9457). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly mistakes: Mistake[] = [],
  ) {
    super(detail)
    this.name = 'Problem'
  }
}

/** No answer came: the server is away, or the network is. */
export class Unreachable extends Error {
  constructor() {
    super('The server does not answer.')
    this.name = 'Unreachable'
  }
}

interface ProblemBody {
  code?: unknown
  detail?: unknown
  title?: unknown
  errors?: { path: string; message: string; help?: string | null }[]
}

export async function readProblem(response: Response): Promise<Problem> {
  let body: ProblemBody = {}
  try {
    body = (await response.clone().json()) as ProblemBody
  } catch {
    // A proxy in between answers with something else; the status still tells.
  }
  const detail = typeof body.detail === 'string' ? body.detail : String(body.title ?? `The server answered ${response.status}.`)
  const mistakes = (body.errors ?? []).map(({ path, message, help }) => ({ path, message, help: help ?? null }))
  return new Problem(response.status, typeof body.code === 'string' ? body.code : 'unknown', detail, mistakes)
}

export function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
