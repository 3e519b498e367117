/** The one place that sends requests: token, problems, and whether the server is there. */
import createClient from 'openapi-fetch'
import { serverAnswered, serverAway } from './connection'
import type { components, paths } from './openapi'
import { Problem, readProblem, Unreachable } from './problem'
import { refuse, session } from './session'

export type Wire = components['schemas']

let accepted: string | null = null
let wroteAt = -Infinity

/** Milliseconds since this page has last changed something, or tried to. */
export const sinceWrite = () => performance.now() - wroteAt

/** As `fetch`, with the token; whatever is not a success is thrown. */
export async function send(request: Request): Promise<Response> {
  const { token } = session.get()
  if (token !== null) request.headers.set('Authorization', `Bearer ${token}`)
  let response: Response
  try {
    response = await fetch(request)
  } catch (error) {
    if (request.signal.aborted) throw error
    serverAway()
    throw new Unreachable()
  } finally {
    if (request.method !== 'GET') wroteAt = performance.now()
  }
  if ([502, 503, 504].includes(response.status)) {
    const problem = await readProblem(response)
    // A gateway answers for a server that is away; our own 503 is a problem with a code.
    if (problem.code === 'unknown') {
      serverAway()
      throw new Unreachable()
    }
    throw problem
  }
  serverAnswered()
  if (response.status === 401) {
    refuse(token, token !== null && token === accepted)
    throw new Problem(401, 'unauthenticated', 'Sign in with a token.')
  }
  if (!response.ok) throw await readProblem(response)
  accepted = token
  return response
}

export const client = createClient<paths>({
  baseUrl: location.origin,
  fetch: send,
  querySerializer: { array: { style: 'form', explode: true } },
})

/** The body of a success. */
export function body<T>(answer: { data?: T }): T {
  if (answer.data === undefined) throw new Problem(500, 'unknown', 'The server answered without a body.')
  return answer.data
}

export function url(path: string, query: Record<string, string | number | boolean | undefined> = {}): URL {
  const address = new URL(path, location.origin)
  for (const [key, value] of Object.entries(query)) if (value !== undefined) address.searchParams.set(key, String(value))
  return address
}
