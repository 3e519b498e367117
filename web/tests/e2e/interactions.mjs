// How long a page takes to answer, and what it has to answer on.

/** In forty columns of twenty-five, each needing two of the column before. */
export function thousandSteps() {
  const steps = {}
  for (let i = 0; i < 1000; i++) {
    const column = Math.floor(i / 25)
    const needs = column === 0 ? [] : [...new Set([(column - 1) * 25 + (i % 25), (column - 1) * 25 + ((i * 7) % 25)])].map(n => `s${n}`)
    steps[`s${i}`] = { run: 'true', needs, labels: { nobody: 'has-this' } }
  }
  return { name: 'thousand', steps }
}

/** What an interaction changes: which elements, and what of them. */
export const PLACE = ['.react-flow__viewport', 'style']
export const STEP = ['aside h2', 'text']
export const TAB = ['[role=tab][aria-selected=true]', 'id']
export const BLOCKS = ['[data-span]', 'x']
export const PRESSED = ['[data-row][aria-pressed=true]', 'data-row']
export const SELECTED = ['[data-job][aria-selected=true]', 'data-job']

/** Milliseconds from the key, or the turn of the wheel, to the first frame in which what it changes is drawn. */
export function keyToFrame(page, key, sign) {
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
export const settled = page =>
  page.evaluate(() => new Promise(resolve => setTimeout(() => requestIdleCallback(resolve, { timeout: 5000 }), 400)))

/** Each key in turn, again and again; the quickest first. */
export async function answers(page, runs, keys, sign, between = () => {}) {
  const times = []
  for (let run = 0; run < runs; run++) {
    const key = keys[run % keys.length]
    times.push({ key, took: await keyToFrame(page, key, sign) })
    await between()
  }
  return times.sort((a, b) => a.took - b.took)
}
