// The interactive simulator: a node is isolated in the browser, its services start elsewhere, and the saved scenario repeats it.
import type { Page } from '@playwright/test';
import { expect, expectAccessible, test } from './console';
import { startSimulation, replay, type RunningSimulation } from './simulator';

test.describe.configure({ mode: 'serial' });

let simulation: RunningSimulation;

const switchOf = (page: Page, name: string) => page.getByRole('switch', { name, exact: true });

test.beforeEach(async () => {
  simulation = await startSimulation();
});

test.afterEach(async () => {
  await simulation.stop();
});

test('the services of an isolated node start elsewhere, and the saved scenario ends the same', async ({ page }, info) => {
  await page.goto(simulation.url);
  await expect(page.getByRole('heading', { level: 1 })).toContainText('services run');
  await page.getByRole('link', { name: 'Simulation' }).click();
  const machine = (name: string) => page.getByRole('row', { name });
  const services = (name: string) => machine(name).locator('td').nth(1).getByRole('button');
  await expect(services('node3')).not.toHaveCount(0);
  const isolatedServices = await services('node3').allTextContents();
  await expectAccessible(page);
  await page.getByLabel('Speed').selectOption('20');
  await switchOf(page, 'Network of node3').click();
  await expect(switchOf(page, 'Network of node3')).toHaveAttribute('aria-checked', 'false');
  await expect(services('node3')).toHaveCount(0);
  for (const service of isolatedServices) {
    await expect(page.locator('tbody tr').filter({ hasText: service })).toHaveCount(1);
  }
  await expect(page.getByRole('log', { name: 'Timeline' })).toContainText('fenced');
  // The reason is in the console's own words, as in a real cluster.
  await page.goto(`${simulation.url}#/events`);
  await expect(page.locator('main')).toContainText('node3');
  await page.goto(`${simulation.url}#/simulation`);
  await page.getByRole('button', { name: 'Pause' }).first().click();
  await expect(page.getByRole('button', { name: 'Resume' }).first()).toBeVisible();
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Save as a scenario' }).click();
  const file = info.outputPath('scenario.yaml');
  await (await download).saveAs(file);
  const summary = replay(file);
  expect(summary.violations).toEqual([]);
  expect(summary.expect.filter((check) => !check.ok)).toEqual([]);
  for (const service of isolatedServices) expect(summary.services[service]?.running).not.toContain('node3');
});

test('the clock pauses, steps, goes back, and repeats; the console changes objects', async ({ page }) => {
  await page.goto(`${simulation.url}#/simulation`);
  await page.getByRole('button', { name: 'Pause' }).first().click();
  const clock = page.locator('.clock');
  await expect(page.getByRole('button', { name: 'Resume' }).first()).toBeVisible();
  const initialTime = await clock.textContent();
  await page.getByLabel('Action').fill('power node1 off');
  await page.getByRole('button', { name: 'Run' }).click();
  await expect(switchOf(page, 'Power of node1')).toHaveAttribute('aria-checked', 'false');
  await page.getByLabel('Action').fill('explode node1');
  await page.getByRole('button', { name: 'Run' }).click();
  await expect(page.getByRole('alert')).toContainText('not a valid action');
  await page.getByRole('button', { name: 'Next event' }).click();
  await page.getByRole('slider', { name: 'Time' }).fill('0');
  await expect(clock).toHaveText('0:00.0');
  await expect(switchOf(page, 'Power of node1')).toHaveAttribute('aria-checked', 'true');
  expect(initialTime).not.toBe('0:00.0');
  await page.getByRole('button', { name: 'Resume' }).first().click();
  // The step comes again.
  await expect(switchOf(page, 'Power of node1')).toHaveAttribute('aria-checked', 'false');
  await page.goto(`${simulation.url}#/resources/cache`);
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await page.locator('dialog[open]').getByRole('button', { name: 'Stop', exact: true }).click();
  await expect(page.locator('main')).toContainText('Stopped');
});

test('a simulation in a directory resumes', async ({ page }) => {
  await page.goto(`${simulation.url}#/simulation`);
  await switchOf(page, 'Power of node2').click();
  await expect(switchOf(page, 'Power of node2')).toHaveAttribute('aria-checked', 'false');
  await simulation.restart();
  await page.goto(`${simulation.url}#/simulation`);
  await expect(switchOf(page, 'Power of node2')).toHaveAttribute('aria-checked', 'false');
  await expect(page.locator('.steps')).toContainText('power node2 off');
});
