// How long the page takes to answer, on large jobs: STEADFAST=PROGRAM node web/bench/interactions.mjs
// Measured from the event to the next frame that is drawn, in a real browser; printed, never judged: machines differ.
import { Browser, Server } from '../tests/e2e/harness.mjs'

const RUNS = 15

function thousandSteps() {
  const steps = {}
  for (let i = 0; i < 1000; i++) {
    const column = Math.floor(i / 25)
    const needs = column === 0 ? [] : [...new Set([(column - 1) * 25 + (i % 25), (column - 1) * 25 + ((i * 7) % 25)])].map(n => `s${n}`)
    steps[`s${i}`] = { run: 'true', needs, labels: { nobody: 'has-this' } }
  }
  return { name: 'thousand', steps }
}

/** Milliseconds from the key, or the turn of the wheel, to the first frame in which what it changes is drawn. */
function keyToFrame(page, key, sign) {
  return page.evaluate(
    ([pressed, selector, attribute]) =>
      new Promise(resolve => {
        const look = () => [...document.querySelectorAll(selector)].map(found => found.getAttribute(attribute) ?? found.textContent).join()
        const before = look()
        const began = performance.now()
        const drawn = () =>
          look() === before && performance.now() - began < 5000
            ? requestAnimationFrame(drawn)
            : setTimeout(() => resolve(performance.now() - began))
        if (typeof pressed === 'string') dispatchEvent(new KeyboardEvent('keydown', { key: pressed, bubbles: true }))
        else
          document
            .querySelector('.react-flow__pane')
            .dispatchEvent(new WheelEvent('wheel', { ...pressed, deltaY: pressed.deltaX, clientX: 400, clientY: 400, bubbles: true }))
        requestAnimationFrame(drawn)
      }),
    [key, ...sign],
  )
}

/** Until the page has had nothing to do for a moment. */
const settled = page => page.evaluate(() => new Promise(resolve => setTimeout(() => requestIdleCallback(resolve, { timeout: 5000 }), 400)))

async function measure(page, what, keys, sign, between = () => {}) {
  const times = []
  for (let run = 0; run < RUNS; run++) {
    const key = keys[run % keys.length]
    times.push({ key, took: await keyToFrame(page, key, sign) })
    await between()
  }
  times.sort((a, b) => a.took - b.took)
  const worst = times.at(-1)
  const shown = ms => `${ms.toFixed(0).padStart(4)} ms`
  console.log(`${what.padEnd(56)} median ${shown(times[RUNS >> 1].took)}   worst ${shown(worst.took)} (${JSON.stringify(worst.key)})`)
  if (process.env.ALL) console.log(times.map(({ key, took }) => `${JSON.stringify(key)} ${took.toFixed(0)}`).join(', '))
}

const PLACE = ['.react-flow__viewport', 'style']
const STEP = ['aside h2', 'text']
const TAB = ['[role=tab][aria-selected=true]', 'id']
const BLOCKS = ['[data-span]', 'x']
const PRESSED = ['[data-row][aria-pressed=true]', 'data-row']
const SELECTED = ['[data-job][aria-selected=true]', 'data-job']

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
const million = await server.submit('name: million\nsteps: { all: { run: "true", for_each: { range: 1000000 }, parallelism: 4 } }')

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
