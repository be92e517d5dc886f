// Settings of the cluster, the balancing plan, and the audit log.
import type { Page } from '@playwright/test';
import { address, expect, signIn, test } from './console';
import { hactl } from './sandbox';

interface Timing {
  failovers: { nodes: string[]; node: { totalSeconds: number }; fencingDelaySeconds: number }[];
}

/** Returns the longest failover of the active settings, or of a profile, as hactl computes it. */
function longestFailover(...words: string[]): number {
  const timing = JSON.parse(hactl('timing', '-o', 'json', ...words)) as Timing;
  return Math.max(...timing.failovers.map((failover) => failover.node.totalSeconds));
}

function specOf(path: string): string {
  return hactl('get', 'cluster', 'default', '-o', `jsonpath={.spec.${path}}`).trim();
}

const failover = (page: Page) => page.locator('.failover').first();
const secondsText = (value: number) => `${Number(value.toFixed(1))} s`;

test('the form shows the failover time of changed timings, and refuses invalid ones', async ({ page }) => {
  await signIn(page, 'admin', 'cluster');
  const now = longestFailover();
  await expect(failover(page)).toHaveText(secondsText(now));
  await page.getByLabel('Heartbeat lifetime (s)').fill('9');
  await expect(failover(page)).not.toHaveText(secondsText(now));
  await expect(page.locator('dialog[open]')).toHaveCount(0);
  // A lifetime below two heartbeats and the margin: the server names the sum and the correction.
  await page.getByLabel('Heartbeat lifetime (s)').fill('1');
  await expect(page.locator('.form-row', { hasText: 'Heartbeat lifetime (s)' })).toContainText('or one slow heartbeat stops services');
  await expect(page.getByRole('button', { name: 'Apply settings' })).toBeDisabled();
  await page.getByLabel('Heartbeat interval (s)').fill('0.01');
  await expect(page.locator('.form-row', { hasText: 'Heartbeat interval (s)' })).toContainText('must be at least 0.1');
  await page.getByRole('button', { name: 'Discard changes' }).click();
  await expect(failover(page)).toHaveText(secondsText(now));
  expect(longestFailover()).toBe(now);
});

test('changed settings are applied, with the equivalent command', async ({ page }) => {
  await signIn(page, 'admin', 'cluster');
  const interval = specOf('reservation.intervalSeconds') === '120' ? '150' : '120';
  await page.getByLabel('Interval (s)', { exact: true }).fill(interval);
  await page.getByLabel('Freeze timeout (s)', { exact: true }).fill('700');
  await page.getByRole('button', { name: 'Apply settings' }).click();
  const dialog = page.locator('dialog[open]');
  await expect(dialog).toContainText(`hactl set cluster/default timing.freezeTimeoutSeconds=700 reservation.intervalSeconds=${interval}`);
  await dialog.getByRole('button', { name: 'Apply', exact: true }).click();
  await expect(page.locator('.outcome').last()).toContainText('Accepted');
  expect([specOf('reservation.intervalSeconds'), specOf('timing.freezeTimeoutSeconds')]).toEqual([interval, '700']);
  await page.getByLabel('Freeze timeout (s)', { exact: true }).fill('');
  await page.getByRole('button', { name: 'Apply settings' }).click();
  await dialog.getByRole('button', { name: 'Apply', exact: true }).click();
  await expect.poll(() => specOf('timing.freezeTimeoutSeconds')).toBe('');
});

test('a viewer reads the settings and changes none', async ({ page }) => {
  await signIn(page, 'viewer', 'cluster');
  await expect(failover(page)).toBeVisible();
  await expect(page.getByLabel('Heartbeat lifetime (s)')).toBeDisabled();
  await expect(page.locator('.form-end')).toContainText('cannot patch clusters');
});

function nodesOf(): Record<string, string> {
  const list = JSON.parse(hactl('get', 'resources', '-o', 'json')) as { items: { metadata: { name: string }; status: { node: string } }[] };
  return Object.fromEntries(list.items.map((item) => [item.metadata.name, item.status.node]));
}

test('a balancing plan shows the nodes before and after, and is applied with progress', async ({ page }) => {
  for (const name of ['mail', 'queue', 'database', 'web1']) {
    if (nodesOf()[name] !== 'node1') hactl('migrate', name, 'node1', '--wait');
  }
  await signIn(page, 'operator', 'capacity');
  await page.getByRole('button', { name: 'Plan moves' }).click();
  const nodes = page.getByRole('region', { name: /^Nodes of group/ });
  await expect(nodes.locator('tr', { hasText: 'node1' }).locator('td').nth(1)).toHaveText('4');
  await expect(page.getByRole('region', { name: /^Moves of group/ })).toContainText(/hactl (migrate|relocate) \w+ node[23]/);
  const before = nodesOf();
  await page.getByRole('button', { name: /^Apply \d+ move/ }).click();
  const dialog = page.locator('dialog[open]');
  await expect(dialog).toContainText('hactl balance --apply');
  await dialog.getByRole('button', { name: 'Apply', exact: true }).click();
  const run = page.locator('.run');
  await expect(run).toContainText('Done');
  await expect(run).toContainText(/(\d+) of \1 moves/);
  expect(nodesOf()).not.toEqual(before);
  // Nothing is left to move.
  await page.getByRole('button', { name: 'Plan moves' }).click();
  await expect(page.getByText('Nothing to move.')).toBeVisible();
});

test('a viewer plans moves and may not make them', async ({ page }) => {
  await signIn(page, 'viewer', 'capacity');
  await page.getByRole('button', { name: 'Plan moves' }).click();
  await expect(page.getByRole('button', { name: 'Plan again' })).toBeVisible();
  await expect(page.getByRole('button', { name: /^Apply \d+ moves?$/ })).toHaveCount(0);
});

test('an admin reads the audit log with filters', async ({ page }) => {
  const comment = `audit ${Date.now()}`;
  await signIn(page, 'admin');
  const answer = await page.evaluate(async (text) => {
    const headers = { Authorization: `Bearer ${sessionStorage.getItem('hactl.token') ?? ''}`, 'Content-Type': 'application/merge-patch+json' };
    const body = JSON.stringify({ spec: { comment: text } });
    return (await fetch('/apis/hactl.io/v1/resources/mail?fieldManager=audit-test', { method: 'PATCH', headers, body })).status;
  }, comment);
  expect(answer).toBe(200);
  await page.getByRole('link', { name: 'Audit' }).click();
  const rows = page.locator('tbody tr');
  await expect(rows.first()).toContainText('audit-test');
  await expect(rows.first()).toContainText('test-admin');
  await expect(page.locator('main')).not.toContainText(comment);
  await page.getByLabel('Kind').selectOption('nodes');
  await expect(page.locator('tbody')).not.toContainText('audit-test');
  await page.getByLabel('Kind').selectOption('resources');
  await page.getByRole('combobox', { name: 'Outcome' }).selectOption('Refused');
  await expect(page.locator('main')).not.toContainText('audit-test');
});

test('the audit log is not offered to others, and its address shows the refusal', async ({ page }) => {
  await signIn(page, 'operator');
  await expect(page.getByRole('link', { name: 'Audit' })).toHaveCount(0);
  await page.goto(address('audit'));
  await expect(page.getByRole('alert')).toContainText('cannot get resource "audit"');
});
