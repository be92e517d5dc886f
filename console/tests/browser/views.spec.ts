// Every view: live data, both themes, accessibility, and a narrow screen.
import { fileURLToPath } from 'node:url';
import { expect, expectAccessible, open, signIn, test } from './console';

const VIEWS: { view: string; name: string; text: string | RegExp }[] = [
  { view: '', name: 'overview', text: /services run\./ },
  { view: 'placement', name: 'placement', text: 'Free capacity' },
  { view: 'placement?fail=node3', name: 'failure', text: 'pinned cannot run' },
  { view: 'resources', name: 'resources', text: 'database' },
  { view: 'resources/database', name: 'resource', text: 'hactl why database' },
  { view: 'nodes', name: 'nodes', text: 'Armed' },
  { view: 'nodes/node1', name: 'node', text: 'Fencing delay' },
  { view: 'rules', name: 'rules', text: 'run on different nodes' },
  { view: 'rules/group/disks', name: 'group', text: 'Definition' },
  { view: 'capacity', name: 'capacity', text: 'Some services cannot run' },
  { view: 'fencing', name: 'fencing', text: 'Fencing delay' },
  { view: 'cluster', name: 'cluster', text: 'Longest failover with these settings' },
  { view: 'audit', name: 'audit', text: 'records of controller' },
  { view: 'events', name: 'events', text: 'Service running' },
  { view: 'operations', name: 'operations', text: /operations|Succeeded/ },
];

// Pictures of the docs are written only on request, because their content differs with each run.
const pictures = process.env['HACTL_PICTURES'] === undefined ? undefined : fileURLToPath(new URL('../../../docs/pictures', import.meta.url));
const PICTURED = ['overview-light', 'failure-light', 'resource-dark'];
const SETTINGS_PICTURE = 'cluster-light';

for (const theme of ['light', 'dark'] as const) {
  test(`every view shows live data in the ${theme} theme without accessibility violations`, async ({ page }, info) => {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' });
    await signIn(page, 'admin');
    for (const { view, name, text } of VIEWS) {
      await test.step(name, async () => {
        await open(page, view);
        await expect(page.locator('main')).toContainText(text);
        await expect(page.getByText('Loading…')).toHaveCount(0);
        await expectAccessible(page);
        await page.screenshot({ path: info.outputPath(`${name}-${theme}.png`) });
        if (pictures !== undefined && PICTURED.includes(`${name}-${theme}`)) {
          await page.screenshot({ path: `${pictures}/console-${name}-${theme}.png` });
        }
        if (pictures !== undefined && `${name}-${theme}` === SETTINGS_PICTURE) {
          // The bars of the page must not cover the card.
          const size = page.viewportSize();
          await page.setViewportSize({ width: 1360, height: 3200 });
          await page.locator('section.card', { has: page.getByRole('heading', { name: 'Timing', exact: true }) }).screenshot({ path: `${pictures}/console-settings-${theme}.png` });
          if (size !== null) await page.setViewportSize(size);
        }
      });
    }
  });
}

test('every view fits a width of 360 pixels', async ({ page }, info) => {
  await page.setViewportSize({ width: 360, height: 740 });
  await signIn(page, 'admin');
  for (const { view, name, text } of VIEWS) {
    await open(page, view);
    await expect(page.locator('main')).toContainText(text);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    expect(overflow, name).toBeLessThanOrEqual(0);
    await page.screenshot({ path: info.outputPath(`${name}-360.png`) });
  }
});

test('the back button returns to the last view', async ({ page }) => {
  await signIn(page, 'viewer', 'nodes');
  await page.getByRole('link', { name: 'node2', exact: true }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'node2' })).toBeVisible();
  await page.goBack();
  await expect(page.getByRole('heading', { level: 1, name: 'Nodes' })).toBeVisible();
  await page.reload();
  await expect(page.getByRole('heading', { level: 1, name: 'Nodes' })).toBeVisible();
});

test('the palette finds objects and actions by keyboard', async ({ page }) => {
  await signIn(page, 'admin');
  await page.keyboard.press('/');
  await page.keyboard.type('database');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { level: 1, name: 'database' })).toBeVisible();
  await page.keyboard.press('Control+k');
  await page.keyboard.type('cordon node1');
  await expect(page.getByRole('option', { selected: true })).toContainText('node1');
  await expectAccessible(page);
  await page.keyboard.press('Escape');
  await page.keyboard.press('?');
  await expect(page.getByRole('heading', { name: 'Keys' })).toBeVisible();
  await expectAccessible(page);
  await page.keyboard.press('Escape');
  await page.keyboard.press('g');
  await page.keyboard.press('n');
  await expect(page.getByRole('heading', { level: 1, name: 'Nodes' })).toBeVisible();
});
