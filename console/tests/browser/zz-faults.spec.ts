// Faults under the console: a killed node, unreachable controllers, and the change to another controller. Runs last.
import { expect, open, signIn, test } from './console';
import { controllers, hactl, machine } from './sandbox';

const everythingRuns = /All 6 services run\./;

test('a killed node changes the overview, and its services run elsewhere', async ({ page }, info) => {
  if (hactl('get', 'resource', 'database', '-o', 'jsonpath={.status.node}').trim() !== 'node1') {
    hactl('migrate', 'database', 'node1');
  }
  await signIn(page, 'viewer');
  const headline = page.locator('.headline');
  await expect(headline).toContainText(everythingRuns);
  machine('node1', 'kill');
  try {
    await expect(headline).not.toContainText(everythingRuns);
    await expect(page.getByRole('region', { name: 'Needs attention' })).toContainText('node1');
    await page.screenshot({ path: info.outputPath('killed.png') });
    await expect(headline).toContainText(everythingRuns);
    await open(page, 'fencing');
    await expect(page.getByRole('region', { name: 'Fencing operations' })).toContainText('node1');
  } finally {
    machine('node1', 'power-on');
  }
  await open(page, '');
  await expect(headline).toContainText('of 3 nodes');
  await expect(page.getByRole('region', { name: 'Needs attention' })).toHaveCount(0);
});

test('the console uses another controller when its own fails', async ({ page }) => {
  test.setTimeout(400_000);
  const [first] = controllers();
  await signIn(page, 'admin');
  // The overview contains the addresses of the other controllers.
  await expect(page.locator('.headline')).toContainText(everythingRuns);
  machine(first?.name ?? '', 'cut');
  try {
    await expect(page.locator('.banner')).toContainText('Data comes from https://');
    await expect(page.getByText('Live', { exact: true })).toBeVisible();
    await open(page, 'resources/web2');
    await page.getByRole('button', { name: 'Restart', exact: true }).click();
    await expect(page.locator('dialog[open]').getByText('Checking the effects…')).toHaveCount(0);
    await page.locator('dialog[open]').getByRole('button', { name: 'Restart', exact: true }).click();
    await expect(page.locator('.outcome').last()).toContainText('Succeeded');
  } finally {
    machine(first?.name ?? '', 'heal');
  }
  // The browser may wait for the next attempt of a connection that it began during the cut.
  await expect(page.locator('.banner')).toHaveCount(0, { timeout: 180_000 });
});

test('stale data is marked with its age and cause until a controller answers', async ({ page }, info) => {
  await signIn(page, 'viewer');
  await expect(page.locator('.headline')).toContainText(everythingRuns);
  const all = controllers();
  for (const { name } of all) machine(name, 'cut');
  try {
    await expect(page.getByRole('alert')).toContainText(/Data is \d+ s old\. Cause: .+ Reconnecting automatically/);
    await expect(page.getByText('Stale', { exact: true })).toBeVisible();
    await page.screenshot({ path: info.outputPath('stale.png') });
  } finally {
    for (const { name } of all) machine(name, 'heal');
  }
  await expect(page.getByText('Live', { exact: true })).toBeVisible();
  await expect(page.getByRole('alert')).toHaveCount(0);
});
