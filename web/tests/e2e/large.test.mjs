// A million items, a thousand steps.
import { assert, assertEqual, Server, text, textHolds } from './harness.mjs'
import { answers, PLACE, settled, STEP, TAB, thousandSteps } from './interactions.mjs'

export async function setUp() {
  const server = await Server.start()
  const million = await server.submit('name: million\nsteps: { all: { run: "true", for_each: { range: 1000000 }, parallelism: 4 } }')
  const thousand = await server.submit(thousandSteps())
  return { server, million, thousand }
}

export const tearDown = ({ server }) => server.remove()

export const tests = {
  async 'a fan-out of a million is one node that counts, and items come in pages'({ server, million, open }) {
    const page = await open()
    await page.goto(`${server.base}/jobs/${million}?step=all`)
    await textHolds(page, '[data-step=all]', 'it counts', found => / of 1M/.test(found))
    const before = await text(page, '[data-step=all]')
    await textHolds(page, '[data-step=all]', 'it goes on', found => found !== before)
    const items = page.getByRole('list', { name: 'Items' })
    await items.getByText('[0]').waitFor()
    await items.evaluate(list => list.scrollTo(0, 4000))
    await items.getByText('[95]').waitFor()
    const drawn = await items.getByRole('listitem').count()
    assert(drawn < 60, `${drawn} items are drawn`)
    await server.post(`/jobs/${million}/pause`, {})
    await page.locator('header [data-state=paused]').waitFor()
    await page.getByRole('tab', { name: 'Timeline' }).click()
    await page.locator('[data-row]').first().waitFor()
    await page.getByRole('tab', { name: 'Events' }).click()
    await page.getByRole('button', { name: 'Follow the end' }).click()
    await page.getByText('paused').first().waitFor()
    await server.post(`/jobs/${million}/cancel`, {})
  },

  async 'a graph of a thousand steps is drawn, and answers'({ server, thousand, open }) {
    const page = await open()
    await page.goto(`${server.base}/jobs/${thousand}`)
    await page.locator('[data-graph="1000"] [data-step=s0]').waitFor()
    const drawn = await page.locator('[data-step]').count()
    assert(drawn > 5 && drawn < 500, `${drawn} steps are drawn`)
    await page.locator('[data-step=s0]').click()
    await page.getByRole('complementary', { name: 'Step s0' }).waitFor()
    await page.keyboard.press('f')
    await page.locator('[data-far-steps="1000"]').waitFor({ state: 'attached' })
    assert((await page.locator('[data-step]').count()) === 0, 'from afar they have no elements')
    await page.keyboard.press('Escape')
    await page.getByRole('complementary', { name: 'Step s0' }).waitFor({ state: 'detached' })
    const last = await page
      .locator('[data-far-state] path')
      .first()
      .evaluate(boxes => {
        const [x, y] = boxes.getAttribute('d').split('M').at(-1).split(/[ h]/).map(Number)
        const at = new DOMPoint(x + 100, y + 30).matrixTransform(boxes.getScreenCTM())
        return [at.x, at.y]
      })
    await page.mouse.click(...last)
    await page.getByRole('complementary', { name: /Step s\d+/ }).waitFor()
    await page.keyboard.press('2')
    await page.locator('[data-far-steps]').waitFor({ state: 'detached' })
    await page.keyboard.press('1')
    await page.locator('[data-graph="1000"] [data-step]').first().waitFor()
  },

  async 'the file of a thousand steps is found in and copied whole, and each policy is there'({ server, thousand, open }) {
    const page = await open()
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
    await page.goto(`${server.base}/jobs/${thousand}?tab=file`)
    const file = page.locator('pre[aria-label="Job file"]')
    await file.getByText('s0:').first().waitFor()
    const { file: kept } = await server.api(`/jobs/${thousand}/plan`)
    assert(
      (await page.evaluate(() => window.find('s999:'))) && (await page.evaluate(() => getSelection().toString())) === 's999:',
      'it is found',
    )
    const selected = await file.evaluate(element => (getSelection().selectAllChildren(element), getSelection().toString()))
    assertEqual(selected.trimEnd(), kept.text.trimEnd(), 'what is selected')
    await page.getByRole('button', { name: 'Copy the job file' }).click()
    assertEqual(await page.evaluate(() => navigator.clipboard.readText()), kept.text, 'what is copied')
    const policies = page.getByRole('list', { name: 'Effective policies' })
    const drawn = await policies.getByRole('listitem').count()
    assert(drawn > 1 && drawn < 30, `${drawn} policies are drawn`)
    await policies.evaluate(list => list.scrollTo(0, list.scrollHeight))
    await policies.getByText('s999', { exact: true }).waitFor()
    await page.getByRole('searchbox', { name: 'Find a step or a value' }).fill('s500')
    await policies.getByText('s500', { exact: true }).waitFor()
    assertEqual(await policies.getByRole('listitem').count(), 1, 'policies of the name')
    await page.reload()
    await policies.getByText('s500', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Copy the policies' }).click()
    assert(/^s500: .*\n  max_attempts: /.test(await page.evaluate(() => navigator.clipboard.readText())), 'the policy is copied')
  },

  async 'a page of a thousand steps answers; the worst of each is told'({ server, thousand, open }) {
    const page = await open()
    await page.goto(`${server.base}/jobs/${thousand}`)
    await page.locator('[data-step=s0]').waitFor()
    await settled(page)
    const worst = async (what, ...of) => {
      const { key, took } = (await answers(page, ...of)).at(-1)
      console.log(`    ${what}: ${took.toFixed(0)} ms (${JSON.stringify(key)})`)
      assert(took < 5000, `${what} has no answer`)
    }
    await worst('next step', 8, ['j'], STEP)
    await worst('zoom', 8, ['-', '+'], PLACE)
    await worst('wheel', 8, [{ deltaX: 400 }, { deltaX: -400 }], PLACE)
    await worst('all in view, and back', 8, ['f', 'j'], PLACE)
    await worst('close a step, and choose one', 8, ['Escape', 'j'], STEP)
    await page.keyboard.press('Escape')
    await worst('another tab, the first time', 7, [...'2345671'], TAB, () => settled(page))
    await worst('another tab', 7, [...'2345671'], TAB, () => settled(page))
  },
}
