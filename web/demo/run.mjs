// A server with workers and jobs of every kind, to look at: node web/demo/run.mjs PROGRAM [PORT]
import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const [program, port = '7117'] = process.argv.slice(2)
if (!program) throw new Error('usage: node run.mjs PROGRAM [PORT]')
const server = `http://127.0.0.1:${port}`
const jobs = join(dirname(fileURLToPath(import.meta.url)), 'jobs')
const data = mkdtempSync(join(tmpdir(), 'steadfast-demo-'))
const children = []

function start(...args) {
  const child = spawn(program, args, { stdio: 'ignore' })
  children.push(child)
}

async function submit(name) {
  const body = readFileSync(join(jobs, name))
  const answer = await fetch(`${server}/v1/jobs`, { method: 'POST', headers: { 'Content-Type': 'application/yaml' }, body })
  if (!answer.ok) throw new Error(`${name}: ${await answer.text()}`)
  return (await answer.json()).id
}

async function until(what, holds) {
  for (let tries = 0; tries < 300; tries++) {
    if (await holds().catch(() => false)) return
    await new Promise(resolve => setTimeout(resolve, 100))
  }
  throw new Error(`it took too long: ${what}`)
}

async function stateOf(id) {
  return (await (await fetch(`${server}/v1/jobs/${id}`)).json()).state
}

start('server', '--auth', 'none', '--listen', `127.0.0.1:${port}`, '--data', join(data, 'server'))
await until('the server answers', async () => (await fetch(`${server}/healthz`)).ok)
for (const [name, datacenter, label] of [
  ['rack-1', 'east', 'disk=ssd'],
  ['rack-2', 'east', 'disk=hdd'],
  ['rack-3', 'west', 'disk=ssd'],
  ['gpu-a', 'west', 'gpu=a100'],
]) {
  start(
    'worker',
    '--server',
    server,
    '--name',
    name,
    '--slots',
    '6',
    '--datacenter',
    datacenter,
    '--label',
    label,
    '--folder',
    join(data, name),
  )
}
await until('four workers are connected', async () => (await (await fetch(`${server}/v1/workers`)).json()).workers.length === 4)
const ids = {}
for (const name of readdirSync(jobs).sort()) ids[name] = await submit(name)
for (let i = 0; i < 2; i++) await submit('heartbeat.yaml')
await submit('nightly-report.yaml')
await until('the migration runs', async () => (await stateOf(ids['migrate-users.yaml'])) === 'running')
await fetch(`${server}/v1/jobs/${ids['migrate-users.yaml']}/pause`, {
  method: 'POST',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({ reason: 'the replica lags' }),
})
console.log(`${server} · Ctrl-C stops it`)

const stop = () => {
  for (const child of children) child.kill('SIGTERM')
  rmSync(data, { recursive: true, force: true })
  process.exit(0)
}
process.on('SIGINT', stop)
process.on('SIGTERM', stop)
setInterval(() => void submit('heartbeat.yaml').catch(() => {}), 20_000)
