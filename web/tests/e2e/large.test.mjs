// A million items, a thousand steps.
import { assert, Server, text, textHolds } from './harness.mjs'

/** In forty columns of twenty-five, each needing two of the column before. */
function thousandSteps() {
  const steps = {}
  for (let i = 0; i < 1000; i++) {
    const column = Math.floor(i / 25)
    const needs = column === 0 ? [] : [...new Set([(column - 1) * 25 + (i % 25), (column - 1) * 25 + ((i * 7) % 25)])].map(n => `s${n}`)
    steps[`s${i}`] = { run: 'true', needs, labels: { nobody: 'has-this' } }
  }
  return { name: 'thousand', steps }
}

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
}
