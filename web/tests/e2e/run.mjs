// Runs all tests of this folder, or those whose names contain the arguments: node tests/e2e/run.mjs [WORD …]
import { existsSync, readdirSync } from 'node:fs'
import { Browser, PROGRAM } from './harness.mjs'

if (!existsSync(PROGRAM)) {
  console.error(`there is no program at ${PROGRAM}: build it, or name it in STEADFAST`)
  process.exit(2)
}
const wanted = process.argv.slice(2)
const here = new URL('.', import.meta.url)
const browser = await Browser.start()
let passed = 0
const failed = []

for (const file of readdirSync(here)
  .filter(name => name.endsWith('.test.mjs'))
  .sort()) {
  const { setUp, tearDown, tests } = await import(new URL(file, here))
  const chosen = Object.entries(tests).filter(([name]) => wanted.length === 0 || wanted.some(word => `${file} ${name}`.includes(word)))
  if (chosen.length === 0) continue
  console.log(file.replace('.test.mjs', ''))
  const given = await setUp()
  for (const [name, run] of chosen) {
    const began = Date.now()
    const pages = []
    const open = async options => {
      const page = await browser.page(options)
      pages.push(page)
      return page
    }
    try {
      await run({ ...given, open })
      const problems = pages.flatMap(page => page.problems)
      if (problems.length > 0) throw new Error(problems.join('\n'))
      passed++
      console.log(`  ✓ ${name} (${Date.now() - began} ms)`)
    } catch (error) {
      failed.push(name)
      console.log(`  ✗ ${name}\n    ${error.stack ?? error}`)
      const last = pages.at(-1)
      if (process.env.SHOTS && last) await last.screenshot({ path: `${process.env.SHOTS}/${failed.length}.png` }).catch(() => {})
    }
    for (const page of pages) await page.context().close()
  }
  await tearDown(given)
}
await browser.stop()
console.log(`${passed} passed, ${failed.length} failed`)
process.exit(failed.length > 0 ? 1 : 0)
