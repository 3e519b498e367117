// axe finds nothing serious, on every view, in both themes, on a desk and on a phone.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { assert, Server } from './harness.mjs'

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const JOB = `
name: looked-at
labels: { team: a }
goals: [after]
retry_budget: { total: 10 }
steps:
  ok: { run: 'printf "\\033[32mgreen\\033[0m\\n"' }
  bad: { run: exit 7, retry: { max_attempts: 2, initial_delay: 50ms } }
  waits: { run: exit 7, retry: { max_attempts: 3, initial_delay: 10m } }
  after: { needs: [ok, waits], run: 'true' }`

const VIEWS = {
  overview: ['/overview', '[role=img]'],
  jobs: ['/jobs?state=running', '[data-job]'],
  fleet: ['/fleet', '[data-worker]'],
  graph: ['/jobs/{id}?step=bad', '[data-step]'],
  timeline: ['/jobs/{id}?tab=timeline', '[data-span=attempt]'],
  why: ['/jobs/{id}?tab=why', '[data-verdict]'],
  events: ['/jobs/{id}?tab=events&seq=2', '[role=listitem]'],
  logs: ['/jobs/{id}?tab=logs', '[role=log]'],
  data: ['/jobs/{id}?tab=data', 'text=Outputs'],
  file: ['/jobs/{id}?tab=file', '[aria-label="Job file"]'],
}

export async function setUp() {
  const server = await Server.start()
  const locked = await Server.start({ auth: 'required' })
  const id = await server.job('running', JOB)
  return { server, locked, id }
}

export async function tearDown({ server, locked }) {
  await server.remove()
  await locked.remove()
}

async function check(page, where) {
  await page.evaluate(AXE)
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }))
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
  const told = serious.map(
    ({ id, help, nodes }) =>
      `${id}: ${help}\n${nodes
        .slice(0, 3)
        .map(node => `  ${node.html.slice(0, 160)} ${node.any[0]?.message ?? ''}`)
        .join('\n')}`,
  )
  assert(serious.length === 0, `${where}:\n${told.join('\n')}`)
}

export const tests = Object.fromEntries(
  ['light', 'dark'].map(theme => [
    `nothing serious on any view, ${theme}`,
    async ({ server, locked, id, open }) => {
      const page = await open({ theme })
      const found = []
      for (const [name, [path, there]] of Object.entries(VIEWS)) {
        await page.goto(server.base + path.replace('{id}', id))
        await page.locator(there).first().waitFor()
        await check(page, name).catch(error => found.push(error.message))
      }
      await page.keyboard.press('?')
      await page.getByRole('dialog').waitFor()
      await check(page, 'help').catch(error => found.push(error.message))
      await page.goto(`${locked.base}/jobs`)
      await page.getByLabel('Token').waitFor()
      await check(page, 'sign in').catch(error => found.push(error.message))
      const phone = await open({ theme, width: 390, height: 844 })
      for (const name of ['overview', 'jobs', 'why']) {
        const [path, there] = VIEWS[name]
        await phone.goto(server.base + path.replace('{id}', id))
        await phone.locator(there).first().waitFor()
        const wide = await phone.evaluate(() => document.documentElement.scrollWidth)
        if (wide > 390) found.push(`${name} on a phone is ${wide} pixels wide`)
        await check(phone, `${name} on a phone`).catch(error => found.push(error.message))
      }
      assert(found.length === 0, found.join('\n'))
    },
  ]),
)
