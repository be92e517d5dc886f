// Actions from the button to the effect on the cluster.
import type { Page } from '@playwright/test';
import { confirm, expect, expectAccessible, signIn, test } from './console';
import { hactl } from './sandbox';

/** Returns the node of a service. */
function nodeOf(name: string): string {
  return hactl('get', 'resource', name, '-o', 'jsonpath={.status.node}').trim();
}

/** Returns the names of the services that run on a node. */
function servicesOf(node: string): string[] {
  const { items } = JSON.parse(hactl('get', 'resources', '-o', 'json')) as {
    items: { metadata: { name: string }; status: { node: string | null; state: string } }[];
  };
  return items.filter(({ status }) => status.node === node && status.state === 'Started').map(({ metadata }) => metadata.name);
}

const other = (node: string) => (node === 'node1' ? 'node2' : 'node1');

test('a service is stopped and started', async ({ page }) => {
  await signIn(page, 'operator', 'resources/mail');
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await expect(page.locator('dialog[open]')).toContainText('hactl stop mail');
  await confirm(page, 'Stop');
  await expect(page.locator('.page-title')).toContainText('Stopped');
  expect(hactl('get', 'resource', 'mail', '-o', 'jsonpath={.spec.state}').trim()).toBe('Stopped');
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await confirm(page, 'Start');
  await expect(page.locator('.page-title')).toContainText('Started');
});

test('several services are restarted by the selection of rows', async ({ page }) => {
  await signIn(page, 'operator', 'resources?filter=web');
  await page.getByLabel('Select web1').check();
  await page.getByLabel('Select web2').check();
  await page.getByRole('toolbar').getByRole('button', { name: 'Stop', exact: true }).click();
  await expect(page.locator('dialog[open]')).toContainText('hactl stop web2');
  await confirm(page, 'Stop');
  await expect(page.locator('tbody')).not.toContainText('Started ');
  await page.getByRole('toolbar').getByRole('button', { name: 'Start', exact: true }).click();
  await confirm(page, 'Start');
  await expect(page.locator('tbody td[data-title=State]', { hasText: 'Started' })).toHaveCount(2);
});

async function drag(page: Page, name: string, node: string): Promise<void> {
  const block = page.locator(`[data-name=${name}]`);
  await block.scrollIntoViewIfNeeded();
  const from = await block.boundingBox();
  const to = await page.locator(`[data-node=${node}] .column-body`).boundingBox();
  if (from === null || to === null) throw new Error('the block or the column is not visible');
  await page.mouse.move(from.x + 20, from.y + 10);
  await page.mouse.down();
  await page.mouse.move(from.x + 40, from.y + 14, { steps: 3 });
  await expect(page.locator('.column.eligible, .column.forbidden').first()).toBeVisible();
  await page.mouse.move(to.x + to.width / 2, to.y + 40, { steps: 5 });
}

test('a service is dragged to another node', async ({ page }) => {
  const target = other(nodeOf('queue'));
  await signIn(page, 'operator', 'placement');
  await drag(page, 'queue', target);
  await page.mouse.up();
  await expect(page.locator('dialog[open]')).toContainText(`hactl migrate queue ${target}`);
  await expect(page.locator('dialog[open]')).toContainText('which is eligible');
  await confirm(page, 'Migrate');
  await expect(page.locator(`[data-node=${target}] [data-name=queue]`)).toBeVisible();
  expect(nodeOf('queue')).toBe(target);
});

test('a forbidden target shows its reason, and the drop has no effect', async ({ page }) => {
  await signIn(page, 'operator', 'placement');
  await drag(page, 'pinned', 'node1');
  await expect(page.locator('.ghost')).toContainText('node is excluded by rule pinned-to-node3');
  await expect(page.locator('[data-node=node1] .column-reason')).toBeVisible();
  await page.mouse.up();
  await expect(page.locator('.ghost')).toHaveCount(0);
  await expect(page.locator('dialog[open]')).toHaveCount(0);
});

test('a service is migrated by keyboard', async ({ page }) => {
  const target = other(nodeOf('mail'));
  await signIn(page, 'operator', 'placement');
  await page.locator('[data-name=mail]').focus();
  await page.keyboard.press('Enter');
  await page.locator('dialog[open]').getByRole('button', { name: target, exact: true }).press('Enter');
  await confirm(page, 'Migrate');
  await expect(page.locator(`[data-node=${target}] [data-name=mail]`)).toBeVisible();
});

test('the simulated failure of a node moves services and names the reasons', async ({ page }) => {
  await signIn(page, 'viewer', 'placement');
  await page.locator('[data-node=node3] .column-title').click();
  await expect(page.getByRole('status').filter({ hasText: 'If node3 fails now' })).toContainText(
    'pinned cannot run: node1: node is excluded by a strict node-affinity rule',
  );
  await expect(page.locator('[data-node=node3] [data-name=pinned]')).toContainText('no eligible node');
  await page.getByRole('button', { name: 'End the simulation' }).click();
  await expect(page.locator('[data-node=node3] [data-name=pinned]')).toContainText('Started');
});

test('maintenance moves services away, with the effects shown before', async ({ page }) => {
  const before = servicesOf('node1');
  await signIn(page, 'operator', 'nodes/node1');
  await page.getByRole('button', { name: 'Enable maintenance' }).click();
  const dialog = page.locator('dialog[open]');
  await expect(dialog).toContainText('would live-migrate node1 → ');
  await dialog.getByRole('button', { name: 'Enable maintenance', exact: true }).click();
  await expect(page.locator('main')).toContainText('The node is empty.');
  await page.getByRole('button', { name: 'End maintenance' }).click();
  await expect(dialog.getByText('Checking the effects…')).toHaveCount(0);
  await dialog.getByRole('button', { name: 'End maintenance', exact: true }).click();
  await expect(page.locator('.page-title')).toContainText('Online');
  // The services return, one move after another.
  await expect.poll(() => servicesOf('node1')).toEqual(before);
});

test('an edited definition is checked on the server, then applied', async ({ page }) => {
  await signIn(page, 'editor', 'resources/queue');
  const editor = page.getByLabel('YAML of the Resource');
  const text = await editor.inputValue();
  await editor.fill(text.replace('spec:', 'spec:\n  priorty: 5'));
  await page.getByRole('button', { name: 'Check', exact: true }).click();
  await expect(page.getByRole('alert')).toContainText('priority');
  await editor.fill(text.replace('spec:', 'spec:\n  priority: 5'));
  await page.getByRole('button', { name: 'Check', exact: true }).click();
  await expect(page.locator('.difference .added')).toContainText('priority: 5');
  await page.getByRole('button', { name: 'Apply', exact: true }).click();
  await expect(page.locator('.editor').getByRole('status')).toContainText('Applied');
  expect(hactl('get', 'resource', 'queue', '-o', 'jsonpath={.spec.priority}').trim()).toBe('5');
});

test('a form changes the settings of a resource, with the equivalent command', async ({ page }) => {
  await signIn(page, 'editor', 'resources/queue');
  await page.getByText('Change settings in a form').click();
  await page.getByLabel('Max restart').fill('x');
  await expect(page.locator('.form')).toContainText('must be a number');
  await expect(page.getByRole('button', { name: 'Apply changes' })).toBeDisabled();
  await page.getByLabel('Max restart').fill('7');
  await page.getByLabel('Comment').fill('from a form');
  await expect(page.locator('main')).toContainText("hactl set resource/queue maxRestart=7 comment='from a form'");
  await page.getByRole('button', { name: 'Apply changes' }).click();
  await page.locator('dialog[open]').getByRole('button', { name: 'Apply', exact: true }).click();
  await expect.poll(() => hactl('get', 'resource', 'queue', '-o', 'jsonpath={.spec.maxRestart} {.spec.comment}').trim()).toBe('7 from a form');
});

test('a form creates a resource and a rule', async ({ page }) => {
  await signIn(page, 'editor', 'resources');
  await page.getByRole('button', { name: 'New resource' }).click();
  const dialog = page.locator('dialog[open]');
  await dialog.getByLabel('Name', { exact: true }).fill('cron');
  await dialog.getByLabel('Driver', { exact: true }).selectOption('simulated');
  await dialog.getByLabel('Requests: memory').fill('64Mi');
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Check', exact: true }).click();
  await expect(dialog.locator('.difference')).toContainText('memory: "64Mi"');
  await dialog.getByRole('button', { name: 'Apply', exact: true }).click();
  await expect(page.getByRole('link', { name: 'cron' })).toBeVisible();
  await page.goto(page.url().replace(/#.*/, '#/rules'));
  await page.getByRole('button', { name: 'New AffinityRule' }).click();
  await dialog.getByLabel('Name', { exact: true }).fill('cron-apart');
  await dialog.getByLabel('Affinity to').selectOption('Resource affinity');
  await dialog.getByLabel('Resources').fill('cron, mail');
  await dialog.getByRole('combobox', { name: 'Affinity', exact: true }).selectOption('Negative');
  await dialog.getByRole('button', { name: 'Check', exact: true }).click();
  await dialog.getByRole('button', { name: 'Apply', exact: true }).click();
  await expect(page.locator('main')).toContainText('cron, mail run on different nodes');
  expect(hactl('get', 'affinityrule', 'cron-apart', '-o', 'jsonpath={.spec.resourceAffinity.resources}').trim()).toBe('["cron","mail"]');
  hactl('delete', 'affinityrule', 'cron-apart');
  hactl('delete', 'resource', 'cron');
});

test('the replay shows a service on its earlier node', async ({ page }) => {
  const from = nodeOf('queue');
  const target = other(from);
  hactl('migrate', 'queue', target);
  await signIn(page, 'operator', 'placement');
  await expect(page.locator(`[data-node=${target}] [data-name=queue]`)).toBeVisible();
  await page.getByRole('button', { name: 'Replay the last hour' }).click();
  const replay = page.getByRole('region', { name: 'Replay' });
  await expect(replay.getByRole('list')).toContainText(`${from} → ${target}`);
  const slider = replay.getByRole('slider', { name: 'Time of the replay' });
  await expect(async () => {
    await replay.getByRole('button', { name: 'Previous change' }).click();
    await expect(page.locator(`[data-node=${from}] [data-name=queue]`)).toBeVisible({ timeout: 500 });
  }).toPass();
  await expectAccessible(page);
  await slider.press('End');
  expect(await slider.evaluate((input: HTMLInputElement) => input.value === input.max)).toBe(true);
  await expect(page.locator(`[data-node=${target}] [data-name=queue]`)).toBeVisible();
  await replay.getByRole('button', { name: 'End the replay' }).click();
  await expect(replay).toHaveCount(0);
});

test('the editor completes fields and values', async ({ page }) => {
  await signIn(page, 'editor', 'resources/queue');
  const editor = page.getByLabel('YAML of the Resource');
  await editor.press('Control+End');
  await editor.pressSequentially('  failb');
  const suggestions = page.getByRole('listbox', { name: 'Suggestions' });
  await expect(suggestions.getByRole('option', { selected: true })).toContainText('failback');
  await expectAccessible(page);
  await page.keyboard.press('Enter');
  await expect(suggestions.getByRole('option', { selected: true })).toContainText('true');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Tab');
  await expect(editor).toHaveValue(/\n {2}failback: false$/);
  await page.getByRole('button', { name: 'Check', exact: true }).click();
  await expect(page.locator('.difference .added')).toContainText('failback: false');
  await editor.press('Control+z');
  await expect(editor).not.toHaveValue(/failback: false$/);
  await page.getByRole('button', { name: 'Discard' }).click();
});
