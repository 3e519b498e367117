// The hash over everything that a build is made of. The server's tests compute the same one.
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

export const web = dirname(dirname(fileURLToPath(import.meta.url)))

/** Paths below `folder`, sorted by their bytes. */
export function filesUnder(folder) {
  const entries = readdirSync(folder, { withFileTypes: true, recursive: true })
  const paths = entries.filter(entry => entry.isFile()).map(entry => relative(folder, join(entry.parentPath, entry.name)))
  return paths.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
}

export function sourcesHash() {
  const top = readdirSync(web).filter(name => name.endsWith('.json') || name === 'index.html' || name === 'vite.config.ts')
  const folders = ['src', 'public'].filter(name => existsSync(join(web, name)))
  const paths = [...top, ...folders.flatMap(folder => filesUnder(join(web, folder)).map(path => `${folder}/${path}`))]
  paths.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
  const hash = createHash('sha256')
  for (const path of paths) {
    const content = readFileSync(join(web, path))
    hash.update(`${path}\0${content.length}\0`).update(content)
  }
  return hash.digest('hex')
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) console.log(sourcesHash())
