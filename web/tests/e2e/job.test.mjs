// A job's page: progress, retries, why, what if, logs.
import { assert, assertEqual, Server, text, textHolds, until } from './harness.mjs'

const COUNTS_DOWN = `
name: counts-down
retry_budget: { total: 10 }
steps:
  fetch: { run: exit 7, retry: { max_attempts: 4, backoff: [100ms, 10m], delay_budget: 1h } }
  publish: { run: echo published, needs: [fetch] }`

const EXHAUSTED = `
name: exhausted
retry_budget: { total: 10 }
steps:
  fetch: { run: exit 7, retry: { max_attempts: 3, initial_delay: 50ms } }
  other: { run: '[ $STEADFAST_ATTEMPT -gt 1 ]', retry: { initial_delay: 50ms } }
  publish: { run: echo published, needs: [fetch, other] }`

const HOSTILE = `
name: hostile
steps:
  print:
    run: |
      printf '<script>window.pwned = 1</script><img src=x onerror="window.pwned = 1">\\n'
      printf '\\033[31mred\\033[0m \\033]0;title\\007plain \\033[2Jkept\\n'
      head -c 10485760 /dev/zero | tr '\\0' x
      printf '\\nthe last line\\n'`

export async function setUp() {
  return { server: await Server.start() }
}

export const tearDown = ({ server }) => server.remove()

export const tests = {
  async 'progress is live, from the first attempt to the end'({ server, open }) {
    const id = await server.submit('name: live\nsteps: { a: { run: sleep 0.6 }, b: { needs: [a], for_each: [x, y], run: sleep 0.4 } }')
    const page = await open()
    await page.goto(`${server.base}/jobs/${id}`)
    await page.locator('[data-step=a][data-step-state=succeeded]').waitFor()
    await page.locator('[data-step=b][data-step-state=succeeded]').waitFor()
    await page.locator('header [data-state=succeeded]').waitFor()
  },

  async 'a retry counts down, in the timeline and in why'({ server, open }) {
    const id = await server.submit(COUNTS_DOWN)
    await until('the long backoff', async () => (await server.api(`/jobs/${id}`)).runs[0].steps.fetch.items[0].failures === 2)
    const page = await open()
    await page.goto(`${server.base}/jobs/${id}?tab=timeline`)
    await page.locator('[data-span=attempt][data-end=failed]').nth(1).waitFor()
    await page.locator('[data-span=backoff]').first().waitFor({ state: 'attached' })
    await page.locator('[data-retry-at]').waitFor({ state: 'attached' })
    await page.locator('[data-line=now]').waitFor({ state: 'attached' })
    await page.locator('[data-break]').first().waitFor({ state: 'attached' })
    const first = await text(page, '[data-row] [data-countdown]')
    assert(/^\d+m \d\ds$/.test(first), `a countdown: ${first}`)
    await textHolds(page, '[data-row] [data-countdown]', `no longer ${first}`, now => now !== first)
    await page.getByRole('tab', { name: 'Why' }).click()
    await page.getByText('next attempt in').waitFor()
    const explained = await server.api(`/jobs/${id}/explain`)
    const waiting = explained.waiting.find(one => one.state === 'backing_off')
    assertEqual(await text(page, '[data-binding] strong'), waiting.binding.sentence, 'what binds next')
    await server.post(`/jobs/${id}/cancel`, {})
  },

  async 'why shows the accounts before and after, and the smallest change'({ server, open }) {
    const id = await server.job('failed', EXHAUSTED)
    const page = await open()
    await page.goto(`${server.base}/jobs/${id}?tab=why`)
    const explained = await server.api(`/jobs/${id}/explain`)
    await textHolds(page, '[data-sentence]', 'the sentence of explain', found => found === explained.job.sentence.replaceAll('`', ''))
    const stop = explained.verdicts.find(verdict => verdict.verdict === 'stop')
    const row = page.locator(`[data-verdict="${stop.seq}"]`)
    await row.waitFor()
    assertEqual((await row.locator('[data-account=failures]').innerText()).replace(/\s+/g, ' '), 'failures 2 → 3 of 3', 'the account')
    assertEqual(await row.locator('[data-counterfactual]').innerText(), stop.would_change.text.replaceAll('`', ''), 'the counterfactual')
    await page.getByText('Who drew on the job’s budget').waitFor()
    await page.getByText('1 draw by others').waitFor()
  },

  async 'what if is what the route answers, in place'({ server, open }) {
    const id = await server.job('failed', EXHAUSTED)
    const page = await open()
    await page.goto(`${server.base}/jobs/${id}?tab=why&item=fetch`)
    for (const most of [2, 6]) {
      await page.getByRole('textbox', { name: 'max_attempts' }).fill(String(most))
      const answer = await server.post(`/jobs/${id}/what-if`, { step: 'fetch', with: { max_attempts: most } })
      await textHolds(page, '[data-what-if]', 'the summary', found => found === answer.summary)
      const differing = answer.verdicts
        .filter(verdict => verdict.differs && verdict.item.name === 'fetch')
        .map(verdict => String(verdict.seq))
      assert(differing.length > 0, 'something differs')
      await until('the same decisions differ', async () => {
        const shown = await page.locator('[data-verdict][data-differs=true]').evaluateAll(rows => rows.map(row => row.dataset.verdict))
        return JSON.stringify(shown) === JSON.stringify(differing)
      })
    }
    await page.reload()
    await page.locator('[data-what-if]').waitFor()
    await page.getByRole('textbox', { name: 'max_attempts' }).fill('many')
    await textHolds(page, '[aria-label="What if"] [role=alert]', 'the mistake', found => found.includes('whole number'))
  },

  async 'logs are inert, keep their colours, and survive a line of 10 MB'({ server, open }) {
    const id = await server.job('succeeded', HOSTILE)
    const page = await open()
    await page.goto(`${server.base}/jobs/${id}?tab=logs`)
    const log = page.locator('[role=log]')
    // Of a long log the end is read first.
    await log.getByText('the last line').waitFor()
    await page.getByRole('button', { name: /earlier/ }).click()
    await log.getByText('<script>window.pwned = 1</script>').waitFor()
    assertEqual(await log.locator('script, img').count(), 0, 'elements of the log')
    assertEqual(await page.evaluate(() => window.pwned), undefined, 'what a script would have set')
    const red = log.getByText('red', { exact: true })
    assert((await red.getAttribute('style')).includes('color'), 'red is coloured')
    assert((await log.innerText()).includes('plain kept'), 'what surrounds sequences is kept')
    await log.getByText(/characters are not shown/).waitFor()
    const longest = await log.evaluate(element => Math.max(...[...element.querySelectorAll('span')].map(span => span.textContent.length)))
    assert(longest < 50_000, `the longest text on the page has ${longest} characters`)
  },

  async 'a log follows what is printed'({ server, open }) {
    const id = await server.job(
      'running',
      'name: prints\nsteps: { s: { run: "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i; sleep 0.05; done" } }',
    )
    const page = await open()
    await page.goto(`${server.base}/jobs/${id}?tab=logs&follow=true`)
    const last = async () => Number(/line (\d+)\s*$/.exec(await page.locator('[role=log]').innerText())?.[1] ?? 0)
    const first = await until('a line', last)
    await until('a later line', async () => (await last()) > first + 5)
    await server.post(`/jobs/${id}/cancel`, {})
  },

  async 'events, outputs and the file are there'({ server, open }) {
    const id = await server.job('succeeded', `name: outputs\nsteps: { give: { run: 'echo "{\\"answer\\": 42}" > $STEADFAST_OUTPUT' } }`)
    const page = await open()
    await page.goto(`${server.base}/jobs/${id}?tab=events`)
    await page.getByText('ended: succeeded (all_reported)').waitFor()
    await page.getByRole('tab', { name: 'Inputs & outputs' }).click()
    await page.getByText('{"answer":42}').waitFor()
    await page.getByRole('tab', { name: 'File' }).click()
    await page.getByLabel('Job file').getByText('give').waitFor()
    await page.getByText('max_attempts').waitFor()
  },

  async 'datacenters stand side by side, with quorum and deadline'({ server, open }) {
    const id = await server.submit(
      'name: regions\ndatacenters: [east, west]\nbest_effort: { min_datacenters: 1, deadline: 1h }\nsteps: { s: { run: "true" } }',
    )
    const page = await open()
    await page.goto(`${server.base}/jobs/${id}?tab=why`)
    await page.locator('header').getByText('0 of 1 needed').waitFor()
    await page.locator('header').getByText('deadline in').waitFor()
    await page.getByText('no worker in').first().waitFor()
    await server.post(`/jobs/${id}/cancel`, {})
  },
}
