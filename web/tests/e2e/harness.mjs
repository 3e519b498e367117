// Servers of the real program, a real browser, and waiting for things.
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

export const PROGRAM = process.env.STEADFAST ?? new URL('../../../target/debug/steadfast', import.meta.url).pathname
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium'
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]
const LONGEST_WAIT_MS = 20_000

export function temporaryFolder() {
  return mkdtempSync(join(tmpdir(), 'steadfast-web-'))
}

function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().on('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}

/** Looks again until it holds; what it gives is the answer. */
export async function until(what, look, longest = LONGEST_WAIT_MS) {
  const end = Date.now() + longest
  let last
  while (Date.now() < end) {
    try {
      const found = await look()
      if (found) return found
      last = found
    } catch (error) {
      last = error
    }
    await new Promise(resolve => setTimeout(resolve, 50))
  }
  throw new Error(`waited in vain for this: ${what} (last: ${last instanceof Error ? last.message : JSON.stringify(last)})`)
}

export function assert(holds, what) {
  if (!holds) throw new Error(what)
}

export function assertEqual(found, expected, what) {
  assert(JSON.stringify(found) === JSON.stringify(expected), `${what}: found ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`)
}

/** A server with a worker, on a free port, with a data folder of its own. */
export class Server {
  constructor(auth) {
    this.auth = auth
    this.folder = temporaryFolder()
    this.token = null
  }

  static async start({ auth = 'none' } = {}) {
    const server = new Server(auth)
    server.port = await freePort()
    server.base = `http://127.0.0.1:${server.port}`
    if (auth === 'required') server.token = server.createToken('admin')
    await server.up()
    return server
  }

  createToken(scope, ...more) {
    const args = ['token', 'create', '--scope', scope, '--name', scope, '--data', this.folder, ...more]
    return execFileSync(PROGRAM, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
  }

  revokeTokens(name) {
    const list = execFileSync(PROGRAM, ['token', 'list', '--data', this.folder], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
    const ids = list
      .split('\n')
      .filter(line => line.split(/\s+/).includes(name))
      .map(line => line.split(/\s+/)[0])
    for (const id of ids) execFileSync(PROGRAM, ['token', 'revoke', id, '--data', this.folder], { stdio: 'ignore' })
  }

  async up() {
    const args = ['up', '--auth', this.auth, '--listen', `127.0.0.1:${this.port}`, '--data', this.folder, '--slots', '6']
    this.process = spawn(PROGRAM, args, { stdio: 'ignore' })
    await until(`the server answers on ${this.base}`, async () => (await fetch(`${this.base}/readyz`)).ok)
  }

  async down(signal = 'SIGTERM') {
    const ended = new Promise(resolve => this.process.once('exit', resolve))
    this.process.kill(signal)
    await ended
  }

  async remove() {
    await this.down('SIGKILL')
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 })
  }

  async api(path, { method = 'GET', body, type = 'application/json' } = {}) {
    const headers = {
      ...(body === undefined ? {} : { 'Content-Type': type }),
      ...(this.token ? { Authorization: `Bearer ${this.token}` } : {}),
    }
    const answer = await fetch(`${this.base}/v1${path}`, { method, headers, body })
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`)
    return answer.json()
  }

  post(path, body) {
    return this.api(path, { method: 'POST', body: JSON.stringify(body) })
  }

  async submit(job) {
    const file = typeof job === 'string' ? job : JSON.stringify(job)
    return (await this.api('/jobs', { method: 'POST', body: file, type: 'application/yaml' })).id
  }

  /** Submits, and waits until the job is in the state. */
  async job(state, job) {
    const id = await this.submit(job)
    await until(`the job is ${state}`, async () => (await this.api(`/jobs/${id}`)).state === state)
    return id
  }
}

export class Browser {
  static async start() {
    const browser = new Browser()
    browser.browser = await chromium.launch({ executablePath: CHROMIUM, headless: true, args: FLAGS })
    return browser
  }

  /** A page of its own, which must not report errors. */
  async page({ theme = 'light', width = 1280, height = 860 } = {}) {
    const context = await this.browser.newContext({ viewport: { width, height }, colorScheme: theme })
    const page = await context.newPage()
    page.setDefaultTimeout(LONGEST_WAIT_MS)
    page.problems = []
    page.on('pageerror', error => page.problems.push(`uncaught: ${error.message}`))
    page.on('dialog', dialog => (page.problems.push(`dialog: ${dialog.message()}`), void dialog.dismiss()))
    page.on('console', message => {
      if (/Content Security Policy|Refused to/.test(message.text())) page.problems.push(message.text())
    })
    return page
  }

  stop() {
    return this.browser.close()
  }
}

/** The text of what `selector` finds, once it is there. */
export async function text(page, selector) {
  const found = page.locator(selector).first()
  await found.waitFor()
  return (await found.innerText()).trim()
}

/** Waits until the text holds. */
export function textHolds(page, selector, what, holds) {
  return until(`${selector}: ${what}`, async () => holds(await page.locator(selector).first().innerText({ timeout: 1000 })))
}
