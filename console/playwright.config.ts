// Tests in Chromium against a real cluster, which tests/browser/sandbox.ts starts.
import { defineConfig } from '@playwright/test';

export default defineConfig({
  testDir: 'tests/browser',
  // All tests share one cluster.
  workers: 1,
  fullyParallel: false,
  timeout: 180_000,
  expect: { timeout: 60_000 },
  retries: 0,
  reporter: [['./tests/browser/reporter.ts']],
  globalSetup: './tests/browser/setup.ts',
  outputDir: '../.cache/test/console',
  use: {
    browserName: 'chromium',
    ignoreHTTPSErrors: true,
    viewport: { width: 1360, height: 900 },
    trace: 'retain-on-failure',
    screenshot: 'only-on-failure',
    launchOptions: { executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium', args: ['--no-sandbox'] },
  },
});
