// The console in a test: signing in, opening a view, and the checks that hold for every view.
import AxeBuilder from '@axe-core/playwright';
import { expect, test as base, type Page } from '@playwright/test';
import { controllers, token, type Role } from './sandbox';

/** A page with the console; any error in the page fails the test. */
export const test = base.extend<{ errors: string[] }>({
  errors: [
    async ({ page }, use) => {
      const errors: string[] = [];
      page.on('pageerror', (error) => errors.push(error.message));
      page.on('console', (message) => {
        if (message.text().includes('Content Security Policy')) errors.push(message.text());
      });
      await use(errors);
      expect(errors).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };

export function address(view = ''): string {
  return `${controllers()[0]?.url ?? ''}/console/#/${view}`;
}

/** Opens the console and signs in with a token. */
export async function signIn(page: Page, role: Role, view = ''): Promise<void> {
  // Chromium cancels requests when a machine's network link of an earlier test changes.
  await expect(async () => void (await page.goto(address(view)))).toPass();
  await page.getByLabel('Token').fill(token(role));
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('navigation', { name: 'Views' })).toBeVisible();
  await expect(page.getByText('Live', { exact: true })).toBeVisible();
}

export async function open(page: Page, view: string): Promise<void> {
  await page.evaluate((hash) => {
    location.hash = hash;
  }, `#/${view}`);
  await expect(page.locator('main h1')).toBeVisible();
}

export async function expectAccessible(page: Page): Promise<void> {
  const result = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']).analyze();
  const violationTexts = result.violations.map((violation) => `${violation.id}: ${violation.nodes.map((node) => node.html).join(' | ')}`);
  expect(violationTexts).toEqual([]);
}

/** Confirms the dialog that is open, and waits until the operation has succeeded. */
export async function confirm(page: Page, button: string): Promise<void> {
  const dialog = page.locator('dialog[open]');
  await expect(dialog.getByText('Checking the effects…')).toHaveCount(0);
  await dialog.getByRole('button', { name: button, exact: true }).click();
  await expect(page.locator('.outcome').last()).toContainText('Succeeded');
}
