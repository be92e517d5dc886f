// Build of the console: one script and one style sheet below /console/, without source maps.
import { defineConfig } from 'vitest/config';

export default defineConfig({
  base: '/console/',
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact', legalComments: 'none' },
  build: {
    target: 'es2021',
    // The directory contains a tracked file; scripts/clean.mjs removes all others.
    emptyOutDir: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    // `npm run develop` shows the data of a controller at this address.
    proxy: Object.fromEntries(
      ['/api', '/apis', '/version', '/openapi'].map((path) => [
        path,
        { target: process.env['HACTL_DEVELOP_SERVER'] ?? 'https://127.0.0.1:7443', secure: false },
      ]),
    ),
  },
  test: { include: ['tests/unit/**/*.test.ts'], setupFiles: ['tests/unit/setup.ts'] },
});
