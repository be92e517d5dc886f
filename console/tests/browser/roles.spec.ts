// The sign-in of each role: what is offered, and the reason if not.
import { controllers, certificate, hactl } from './sandbox';
import { address, expect, open, signIn, test } from './console';

test('a wrong token is refused with the reason', async ({ page }) => {
  await page.goto(address());
  await page.getByLabel('Token').fill('hactl_wrong');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('alert')).toContainText('unknown or was revoked');
});

test('a viewer reads everything and changes nothing', async ({ page }) => {
  await signIn(page, 'viewer', 'resources/web1');
  const stop = page.getByRole('button', { name: /^Stop/ });
  await expect(stop).toHaveAttribute('aria-disabled', 'true');
  await expect(stop).toHaveAttribute('title', 'User test-viewer cannot create operations/Stop');
  await stop.click({ force: true });
  await expect(page.locator('dialog[open]')).toHaveCount(0);
  await expect(page.getByLabel('YAML of the Resource')).toHaveAttribute('readonly', '');
  await open(page, 'placement');
  await expect(page.locator('main')).toContainText('Services cannot be dragged');
});

test('an operator runs commands, but edits no definitions', async ({ page }) => {
  await signIn(page, 'operator', 'resources/web1');
  await expect(page.getByRole('button', { name: 'Stop', exact: true })).toHaveAttribute('aria-disabled', 'false');
  await expect(page.getByLabel('YAML of the Resource')).toHaveAttribute('readonly', '');
  await open(page, 'nodes/node1');
  await expect(page.getByRole('button', { name: 'Enable maintenance' })).toHaveAttribute('aria-disabled', 'false');
  await expect(page.getByRole('button', { name: /^Confirm powered off/ })).toHaveAttribute('aria-disabled', 'true');
  await open(page, 'cluster');
  await expect(page.getByRole('button', { name: /^Disarm \(Freeze\)/ })).toHaveAttribute('aria-disabled', 'true');
});

test('an editor edits definitions, but runs no commands', async ({ page }) => {
  await signIn(page, 'editor', 'resources/web1');
  await expect(page.getByRole('button', { name: /^Stop/ })).toHaveAttribute('aria-disabled', 'true');
  await expect(page.getByLabel('YAML of the Resource')).not.toHaveAttribute('readonly', '');
});

test('an administrator may do everything, and warnings must be confirmed', async ({ page }) => {
  await signIn(page, 'admin', 'nodes/node1');
  await page.getByRole('button', { name: 'Confirm powered off' }).click();
  const dialog = page.locator('dialog[open]');
  await expect(dialog).toContainText('WARNING: Data loss if node1 still runs');
  await expect(dialog.getByRole('button', { name: 'Confirm powered off' })).toBeDisabled();
  await dialog.getByLabel('I have read the warning').check();
  await expect(dialog.getByText('Checking the effects…')).toHaveCount(0);
  await dialog.getByRole('button', { name: 'Cancel' }).click();
});

test('a client certificate signs in without a token', async ({ browser }) => {
  const origin = controllers()[0]?.url ?? '';
  const context = await browser.newContext({ ignoreHTTPSErrors: true, clientCertificates: [{ origin, ...certificate() }] });
  const page = await context.newPage();
  await page.goto(`${origin}/`);
  await expect(page.getByRole('navigation', { name: 'Views' })).toBeVisible();
  await expect(page).toHaveURL(/\/console\/$/);
  await context.close();
});

test('signing out forgets the token', async ({ page }) => {
  await signIn(page, 'viewer');
  await page.locator('summary', { hasText: 'test-viewer' }).click();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.getByLabel('Token')).toBeVisible();
  expect(hactl('get', 'nodes', '-o', 'name')).toContain('node1');
});
