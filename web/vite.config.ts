import { fileURLToPath } from 'node:url'
import tailwindcss from '@tailwindcss/vite'
import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

/** `npm run dev` shows the sources beside a server that runs: SERVER=http://127.0.0.1:7117 */
const server = process.env.SERVER ?? 'http://127.0.0.1:7117'
const proxied = { target: server, changeOrigin: true, headers: { origin: server } }

export default defineConfig({
  plugins: [react(), tailwindcss()],
  resolve: { alias: { '@': fileURLToPath(new URL('./src', import.meta.url)) } },
  build: {
    outDir: 'build',
    target: 'es2022',
    // The content security policy of the server allows no data: scripts or styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
    reportCompressedSize: false,
  },
  server: { proxy: { '/v1': proxied, '/openapi.json': proxied } },
  test: { include: ['tests/unit/**/*.test.ts'] },
})
