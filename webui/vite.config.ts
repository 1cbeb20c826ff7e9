import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import react from '@vitejs/plugin-react'
import type { Plugin } from 'vite'
import { defineConfig } from 'vitest/config'

const compressible = /\.(js|css|svg)$/

/** Writes `x.gz` beside each text asset, so that the web process never compresses anything itself. */
function precompress(): Plugin {
  return {
    name: 'tursiops-precompress',
    apply: 'build',
    writeBundle(output, bundle) {
      for (const name of Object.keys(bundle)) {
        if (!compressible.test(name) || output.dir === undefined) continue
        const path = join(output.dir, name)
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }))
      }
    },
  }
}

export default defineConfig({
  plugins: [react(), precompress()],
  resolve: { alias: { '@': fileURLToPath(new URL('./src', import.meta.url)) } },
  build: {
    outDir: '../platform/tursiops/console/dist',
    emptyOutDir: true,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1200,
  },
  server: {
    // `npm run dev` beside a running platform: its gateway is the one door.
    proxy: {
      '/api': 'http://127.0.0.1:8000',
      '/v1': 'http://127.0.0.1:8000',
      '/ws': { target: 'ws://127.0.0.1:8000', ws: true },
    },
  },
  test: { include: ['src/**/*.test.ts'] },
})
