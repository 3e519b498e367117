// Makes web/dist of web/build: every file compressed with brotli, and a manifest that says of which sources.
// The server embeds these files as they are, so there is nothing else in the folder.
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { brotliCompressSync, constants } from 'node:zlib'
import { filesUnder, sourcesHash, web } from './sources.mjs'

const TYPES = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
}

const dist = join(web, 'dist')
rmSync(dist, { recursive: true, force: true })
const files = filesUnder(join(web, 'build')).map(path => {
  const content = readFileSync(join(web, 'build', path))
  const type = TYPES[path.split('.').pop()]
  if (!type) throw new Error(`${path}: no content type is known for it`)
  const options = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: content.length }
  const packed = brotliCompressSync(content, { params: options })
  mkdirSync(dirname(join(dist, path)), { recursive: true })
  writeFileSync(join(dist, `${path}.br`), packed)
  const sha256 = createHash('sha256').update(content).digest('hex')
  return { path, type, bytes: content.length, compressed_bytes: packed.length, sha256 }
})
writeFileSync(join(dist, 'manifest.json'), `${JSON.stringify({ sources_sha256: sourcesHash(), files }, null, 1)}\n`)

const total = files.reduce((sum, file) => sum + file.compressed_bytes, 0)
const html = readFileSync(join(web, 'build/index.html'), 'utf8')
const first = files.filter(file => file.path === 'index.html' || html.includes(file.path))
const kb = bytes => `${(bytes / 1000).toFixed(1)} kB`
console.log(`first load ${kb(first.reduce((sum, file) => sum + file.compressed_bytes, 0))}, all ${kb(total)} in ${files.length} files`)
