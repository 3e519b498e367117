// How long the page takes to answer, on large jobs: STEADFAST=PROGRAM node web/bench/interactions.mjs
// Measured from the event to the next frame that is drawn, in a real browser; printed, never judged: machines differ.
import { Browser, Server } from '../tests/e2e/harness.mjs'
import { answers, BLOCKS, PLACE, PRESSED, SELECTED, settled, STEP, TAB, thousandSteps } from '../tests/e2e/interactions.mjs'

const RUNS = 15

async function measure(page, what, keys, sign, between) {
  const times = await answers(page, RUNS, keys, sign, between)
  const worst = times.at(-1)
  const shown = ms => `${ms.toFixed(0).padStart(4)} ms`
  console.log(`${what.padEnd(56)} median ${shown(times[RUNS >> 1].took)}   worst ${shown(worst.took)} (${JSON.stringify(worst.key)})`)
  if (process.env.ALL) console.log(times.map(({ key, took }) => `${JSON.stringify(key)} ${took.toFixed(0)}`).join(', '))
}

async function opened(page, address, there, what) {
  const began = performance.now()
  await page.goto(address)
  await page.locator(there).first().waitFor()
  console.log(`${what.padEnd(56)} ${(performance.now() - began).toFixed(0).padStart(11)} ms`)
}

const server = await Server.start()
const browser = await Browser.start()
const page = await browser.page({ width: 1440, height: 900 })
const thousand = await server.submit(thousandSteps())

await opened(page, `${server.base}/jobs/${thousand}`, '[data-step=s0]', 'open a graph of 1,000 steps')
await measure(page, 'graph of 1,000 steps: to the next step', ['j'], STEP)
await measure(page, 'graph of 1,000 steps: zoom', ['-', '+'], PLACE)
await measure(page, 'graph of 1,000 steps: turn the wheel', [{ deltaX: 400 }, { deltaX: -400 }], PLACE)
await measure(page, 'graph of 1,000 steps: all in view, and back to a step', ['f', 'j'], PLACE)
await page.keyboard.press('f')
await settled(page)
await measure(page, 'all 1,000 steps in view: zoom', ['+', '-'], PLACE)
await measure(page, 'all 1,000 steps in view: nearer until few are', ['+', '+', '+', '+', '+', '+', '+', '+', '+', '+', 'f'], PLACE)
await page.keyboard.press('f')
await settled(page)
await measure(page, 'all 1,000 steps in view: turn the wheel', [{ deltaX: -100 }, { deltaX: 100 }], PLACE)
await measure(page, 'graph of 1,000 steps: close a step, and choose one', ['Escape', 'j'], STEP)
for (const key of '1234567') {
  await page.keyboard.press(key)
  await settled(page)
}
await measure(page, 'job of 1,000 steps: to another tab', [...'1234567'], TAB, () => settled(page))

const million = await server.submit('name: million\nsteps: { all: { run: "true", for_each: { range: 1000000 }, parallelism: 4 } }')
await opened(page, `${server.base}/jobs/${million}?step=all`, '[role=listitem]', 'open a fan-out of 1,000,000 items')
await measure(page, 'fan-out of 1,000,000 items: zoom', ['-', '+'], PLACE)
await server.post(`/jobs/${million}/pause`, {})
await opened(page, `${server.base}/jobs/${million}?tab=timeline`, '[data-row]', 'open its timeline')
await measure(page, 'its timeline: zoom', ['+', '-'], BLOCKS)
await measure(page, 'its timeline: to the next item', ['j'], PRESSED)
await server.post(`/jobs/${million}/cancel`, {})

const lines = Array.from({ length: 2000 }, (_, i) =>
  JSON.stringify({ job: { name: `job-${i % 40}`, steps: { s: { run: 'true', labels: { nobody: 'has-this' } } } } }),
)
await fetch(`${server.base}/v1/jobs/bulk`, {
  method: 'POST',
  headers: { 'Content-Type': 'application/x-ndjson' },
  body: lines.join('\n'),
}).then(answer => answer.text())
await opened(page, `${server.base}/jobs`, '[data-job]', 'open a list of 2,000 jobs')
await measure(page, 'list of 2,000 jobs: to the next job', ['j'], SELECTED)

await browser.stop()
await server.remove()
