// Who may look, who may act, and a server that goes and comes back.
import { assert, assertEqual, Server, text, until } from './harness.mjs'

const FAILS = 'name: fails\nsteps: { s: { run: exit 3, retry: { max_attempts: 1 } } }'

export async function setUp() {
  const server = await Server.start({ auth: 'required' })
  return { server, id: await server.job('failed', FAILS) }
}

export const tearDown = ({ server }) => server.remove()

async function signIn(page, token) {
  await page.getByLabel('Token').fill(token)
  await page.getByRole('button', { name: 'Sign in' }).click()
}

export const tests = {
  async 'a deep link asks for a token, then opens, and again after a reload'({ server, id, open }) {
    const page = await open()
    await page.goto(`${server.base}/jobs/${id}?tab=why`)
    await page.getByRole('heading', { name: 'Sign in to Steadfast' }).waitFor()
    await signIn(page, 'not-a-token')
    await page.getByText('does not know this token').waitFor()
    await signIn(page, server.token)
    await page.getByRole('tab', { name: 'Why', selected: true }).waitFor()
    await page.reload()
    await page.getByRole('tab', { name: 'Why', selected: true }).waitFor()
    const kept = await page.evaluate(() => ({
      local: JSON.stringify({ ...localStorage }),
      cookies: document.cookie,
      session: sessionStorage.length,
    }))
    assert(!kept.local.includes(server.token) && kept.cookies === '' && kept.session === 1, 'the token is in session storage alone')
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByRole('heading', { name: 'Sign in to Steadfast' }).waitFor()
  },

  async 'the token is never in an address'({ server, id, open }) {
    const page = await open()
    const asked = []
    page.on('request', request => asked.push(request.url()))
    await page.goto(`${server.base}/jobs/${id}?tab=logs`)
    await signIn(page, server.token)
    await page.getByRole('tab', { name: 'Logs', selected: true }).waitFor()
    await page.locator('[data-live=live]').waitFor()
    assert(
      asked.length > 5 && asked.every(url => !url.includes(server.token) && url.startsWith(server.base)),
      'no address has it, none leads elsewhere',
    )
  },

  async 'a token that may only read is offered nothing else'({ server, id, open }) {
    const page = await open()
    await page.goto(`${server.base}/jobs/${id}`)
    await signIn(page, server.createToken('read'))
    await page.locator('header [data-state=failed]').waitFor()
    for (const name of ['Retry', 'Cancel', 'Pause']) assertEqual(await page.getByRole('button', { name }).count(), 0, `buttons ${name}`)
    await page.getByRole('link', { name: 'Jobs', exact: true }).click()
    await page.locator('[data-job]').first().waitFor()
    assertEqual(await page.getByRole('button', { name: 'Submit' }).count(), 0, 'buttons to submit')
    assertEqual(await page.locator('[data-job] input').count(), 0, 'boxes to select')
    await page.getByRole('link', { name: 'Fleet' }).click()
    await page.locator('[data-worker]').first().waitFor()
    assertEqual(await page.getByRole('button', { name: 'Drain' }).count(), 0, 'buttons to drain')
  },

  async 'a token that is revoked leads to the sign-in page, and back to the same place'({ server, id, open }) {
    const page = await open()
    const token = server.createToken('submit')
    await page.goto(`${server.base}/jobs/${id}?tab=events`)
    await signIn(page, token)
    await page.getByRole('tab', { name: 'Events', selected: true }).waitFor()
    server.revokeTokens('submit')
    await until('the page asks', async () => {
      await page
        .getByRole('tab', { name: 'File' })
        .click({ timeout: 300 })
        .catch(() => {})
      await page
        .getByRole('tab', { name: 'Graph' })
        .click({ timeout: 300 })
        .catch(() => {})
      return (await page.getByText('no longer good').count()) > 0
    })
    await signIn(page, server.token)
    await page.locator('header [data-state=failed]').waitFor()
  },

  async 'a server that restarts under the page is waited for'({ server, id, open }) {
    const page = await open()
    await page.goto(`${server.base}/jobs`)
    await signIn(page, server.token)
    await page.locator('[data-live=live]').waitFor()
    await server.down('SIGKILL')
    await page.getByText('The server does not answer').waitFor()
    assert((await page.locator(`[data-job="${id}"]`).count()) === 1, 'what was there is still shown')
    await server.up()
    await page.getByText('The server does not answer').waitFor({ state: 'detached' })
    await page.locator('[data-live=live]').waitFor()
    const fresh = await server.job('failed', FAILS)
    await page.locator(`[data-job="${fresh}"] [data-state=failed]`).waitFor()
  },

  async 'a worker is drained and taken back'({ server, open }) {
    const id = await server.job('running', 'name: holds\nsteps: { s: { run: sleep 300 } }')
    const page = await open()
    await page.goto(`${server.base}/fleet`)
    await signIn(page, server.token)
    await page.getByRole('button', { name: 'Drain' }).click()
    await page.getByRole('dialog').getByText('finishes the 1 attempt it runs').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Drain' }).click()
    await page.locator('[data-worker] [data-state=draining]').waitFor()
    await page.getByRole('button', { name: 'Take back' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Take back' }).click()
    await page.locator('[data-worker] [data-state=connected]').waitFor()
    assert((await text(page, '[data-worker]')).includes('1 of 6 in use'), 'slots')
    const left = await text(page, '[data-worker] [data-lease]')
    assert(/^Lease: \d+s left/.test(left), `a lease that beats make longer: ${left}`)
    await server.post(`/jobs/${id}/cancel`, {})
  },
}
