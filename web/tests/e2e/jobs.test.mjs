// The list of jobs: filters, live changes, actions, keys.
import { assert, assertEqual, Server, text, textHolds, until } from './harness.mjs'

const FAILS = 'name: fails\nsteps: { s: { run: exit 3, retry: { max_attempts: 1 } } }'
const WORKS = 'name: works\nlabels: { team: a }\nsteps: { s: { run: echo hello } }'
const SLEEPS = 'name: sleeps\nsteps: { s: { run: sleep 300 } }'

export async function setUp() {
  const server = await Server.start()
  for (let i = 0; i < 3; i++) await server.job('failed', FAILS)
  await server.job('succeeded', WORKS)
  return { server }
}

export const tearDown = ({ server }) => server.remove()

const rows = page => page.locator('[data-job]')

export const tests = {
  async 'a job that is submitted on the page is shown, and succeeds before its eyes'({ server, open }) {
    const page = await open()
    await page.goto(`${server.base}/jobs`)
    await page.getByRole('button', { name: 'Submit' }).click()
    await page.getByRole('textbox', { name: /job file/i }).fill('name: from-the-page\nsteps: { s: { run: echo done } }')
    await page.getByRole('dialog').getByRole('button', { name: 'Submit' }).click()
    await page.waitForURL(/\/jobs\/[0-9a-z]{26}/)
    await page.locator('header [data-state=succeeded]').waitFor()
    assertEqual(await text(page, 'h1'), 'from-the-page', 'the name')
  },

  async 'mistakes in a job file are told where they are'({ server, open }) {
    const page = await open()
    await page.goto(`${server.base}/jobs`)
    await page.getByRole('button', { name: 'Submit' }).click()
    await page.getByRole('textbox', { name: /job file/i }).fill('steps: { a: { run: "true", need: [b] } }')
    await page.getByRole('dialog').getByRole('button', { name: 'Submit' }).click()
    await textHolds(page, '[role=alert]', 'the help is there', found => found.includes('did you mean `needs`'))
  },

  async 'new jobs appear live, not while paused, and then on demand'({ server, open }) {
    const page = await open()
    await page.goto(`${server.base}/jobs?name=live`)
    await page.locator('[data-live=live]').waitFor()
    await page.getByText('No job matches').waitFor()
    await server.job('succeeded', WORKS.replace('works', 'live'))
    await page.locator('[data-job] [data-state=succeeded]').waitFor()
    await page.getByRole('button', { name: 'Pause updates' }).click()
    await server.job('succeeded', WORKS.replace('works', 'live'))
    await page.getByRole('button', { name: /Show \d+ change/ }).waitFor()
    assertEqual(await rows(page).count(), 1, 'rows while paused')
    await page.getByRole('button', { name: /Show \d+ change/ }).click()
    await until('both are shown', async () => (await rows(page).count()) === 2)
  },

  async 'filters are in the address, and counts are those of the server'({ server, open }) {
    const page = await open()
    await page.goto(`${server.base}/jobs`)
    await page.getByRole('button', { name: /^failed/ }).click()
    await until('only failed jobs', async () => (await rows(page).count()) === 3)
    assert(decodeURIComponent(page.url()).includes('state=["failed"]'), `the address has the filter: ${page.url()}`)
    const { by_state: counts } = await server.api('/jobs/counts')
    assertEqual(await text(page, '[data-count=failed]'), String(counts.failed), 'the count')
    await page.reload()
    await until('the same after a reload', async () => (await rows(page).count()) === 3)
    await page.getByRole('button', { name: 'Clear' }).click()
    await page.getByRole('searchbox', { name: 'Label key=value' }).fill('team=a')
    await until(
      'only one with the label',
      async () => (await rows(page).locator('text=works').count()) >= 1 && !(await rows(page).locator('text=fails').count()),
    )
    await page.getByRole('button', { name: 'Clear' }).click()
    await page.getByRole('combobox', { name: 'Stop reason' }).selectOption('attempts_exhausted')
    await until('those that ended for the reason', async () => (await rows(page).count()) === 3)
  },

  async 'cancel says what it will do, does it, and the reason is kept'({ server, open }) {
    const id = await server.job('running', SLEEPS)
    const page = await open()
    await page.goto(`${server.base}/jobs/${id}`)
    await page.getByRole('button', { name: 'Cancel', exact: true }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('1 job will be cancelled').waitFor()
    assertEqual((await server.api(`/jobs/${id}`)).state, 'running', 'nothing has happened yet')
    await dialog.getByRole('textbox', { name: 'Reason' }).fill('wrong input')
    await dialog.getByRole('button', { name: 'Cancel', exact: true }).click()
    await dialog.getByText('1 job cancelled').waitFor()
    await dialog.getByRole('button', { name: 'Close' }).last().click()
    await page.locator('header [data-state=cancelled]').waitFor()
    assertEqual((await server.api(`/jobs/${id}`)).cancel_request.reason, 'wrong input', 'the reason')
  },

  async 'pause and resume, on the selection'({ server, open }) {
    const ids = [await server.job('running', SLEEPS), await server.job('running', SLEEPS)]
    const page = await open()
    await page.goto(`${server.base}/jobs?name=sleeps&state=running,paused`)
    for (const id of ids) await page.locator(`[data-job="${id}"] input`).check()
    await page.getByText('2 selected:').waitFor()
    for (const [action, state] of [
      ['Pause', 'paused'],
      ['Resume', 'running'],
    ]) {
      if (action === 'Resume') for (const id of ids) await page.locator(`[data-job="${id}"] input`).check()
      await page.getByRole('toolbar').getByRole('button', { name: action }).click()
      await page
        .getByRole('dialog')
        .getByRole('button', { name: `${action} them` })
        .click()
      await page.getByRole('dialog').getByRole('button', { name: 'Close' }).last().click()
      for (const id of ids) await page.locator(`[data-job="${id}"] [data-state=${state}]`).waitFor()
    }
    for (const id of ids) await server.post(`/jobs/${id}/cancel`, {})
  },

  async 'all that match are retried with a grant'({ server, open }) {
    const page = await open()
    await page.goto(`${server.base}/jobs?state=failed&name=fails`)
    await until('three failed jobs', async () => (await rows(page).count()) === 3)
    await page.getByRole('toolbar').getByRole('button', { name: 'Retry' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('3 jobs will be run again').waitFor()
    await dialog.getByRole('textbox', { name: /Grant/ }).fill('2')
    await dialog.getByRole('button', { name: 'Retry them' }).click()
    await dialog.getByText('3 jobs retried').waitFor()
    assertEqual(await dialog.getByRole('link', { name: 'the new job' }).count(), 3, 'links to the new jobs')
    const { jobs } = await server.api('/jobs?name=fails&limit=100')
    assertEqual(jobs.filter(job => job.retried_from !== null).length, 3, 'new jobs')
  },

  async 'everything with keys alone'({ server, open }) {
    const page = await open()
    await page.goto(`${server.base}/jobs?name=works`)
    await rows(page).first().waitFor()
    await page.keyboard.press('?')
    await page.getByRole('dialog').getByText('Next job').waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await page.keyboard.press('j')
    await page.locator('[data-job][aria-selected=true]').waitFor()
    await page.keyboard.press('x')
    await page.getByText('1 selected:').waitFor()
    await page.keyboard.press('Enter')
    await page.waitForURL(/\/jobs\/[0-9a-z]{26}/)
    await page.locator('[role=tab]').first().waitFor()
    await page.keyboard.press('5')
    await page.locator('[role=log] >> text=hello').waitFor()
    await page.keyboard.press('/')
    await page.keyboard.type('hell')
    await page.getByText('1 of 1').waitFor()
    await page.keyboard.press('Escape')
    await page.keyboard.press('g')
    await page.keyboard.press('f')
    await page.getByRole('heading', { name: 'Fleet' }).waitFor()
    await page.keyboard.press('g')
    await page.keyboard.press('o')
    await page.getByRole('heading', { name: 'Overview' }).waitFor()
    await page.keyboard.press('g')
    await page.keyboard.press('j')
    await page.keyboard.press('/')
    await page.keyboard.type('works')
    await page.waitForURL(/text=works/)
  },
}
