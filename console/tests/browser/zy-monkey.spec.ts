// Random clicks with faults underneath. HACTL_MONKEY_MINUTES sets the time; `./dev/console --monkey MINUTES` does so.
import { writeFileSync } from 'node:fs';
import type { Page } from '@playwright/test';
import { expect, open, signIn, test } from './console';
import { Monkey, memoryOf, randomNumbers } from './monkey';
import { controllers, directory, hactl, machine } from './sandbox';

const MINUTES = Number(process.env['HACTL_MONKEY_MINUTES'] ?? '0.33');
const SEED = Number(process.env['HACTL_MONKEY_SEED'] ?? Date.now() % 1_000_000);
/** Time of each fault, and the pause before the next one. */
const FAULT_MILLISECONDS = 8_000;
const PAUSE_MILLISECONDS = 4_000;
const VIEWS = ['', 'placement', 'resources', 'resources/web1', 'nodes', 'nodes/node1', 'rules', 'capacity', 'fencing', 'cluster', 'audit', 'events', 'operations'];
/** Growth of the heap that caches and lists of events explain. */
const HEAP_GROWTH_BYTES = 12 * 2 ** 20;
const KINDS = ['resources', 'nodes', 'groups', 'affinityrules', 'clusters'] as const;

interface Fault {
  begin: () => void;
  end: () => void;
}

function faults(): Fault[] {
  const cut = (name: string): Fault => ({ begin: () => machine(name, 'cut'), end: () => machine(name, 'heal') });
  const power: Fault = { begin: () => machine('node1', 'kill'), end: () => machine('node1', 'power-on') };
  return [power, ...controllers().slice(0, 2).map(({ name }) => cut(name)), cut('node2')];
}

interface StoredObject {
  metadata: { name: string };
  spec?: { state?: string };
  status?: { state?: string; node?: string };
}

function stored(kind: string): StoredObject[] {
  return (JSON.parse(hactl('get', kind, '-o', 'json')) as { items: StoredObject[] }).items;
}

/** Returns the nodes and states of the services that the page shows. */
async function shownServices(page: Page): Promise<string[]> {
  const rows = await page.locator('tbody tr').all();
  const cells = await Promise.all(
    rows.map(async (row) => {
      const text = async (title: string) => (await row.locator(`td[data-title="${title}"]`).innerText()).trim();
      // The page shows the type of a service before its name.
      const name = (await text('Name')).split(':').pop() ?? '';
      return `${name} ${await text('State')} ${await text('Node')}`;
    }),
  );
  return cells.sort();
}

/** Checks that the editor of an object contains what hactl reads: `hactl diff` finds no difference. */
async function expectEqualDefinition(page: Page, view: string): Promise<void> {
  await open(page, view);
  const text = await page.locator('.editor textarea').first().inputValue();
  const file = `${directory}/monkey.yaml`;
  writeFileSync(file, text);
  expect(hactl('diff', '-f', file).trim(), view).toBe('');
}

test('random clicks with faults cause no exception, no growth, and no wrong state', async ({ page }) => {
  test.setTimeout(MINUTES * 60_000 + 400_000);
  console.log(`monkey: seed ${SEED}, ${MINUTES} minutes (HACTL_MONKEY_SEED and HACTL_MONKEY_MINUTES repeat this run)`);
  await signIn(page, 'admin');
  for (const view of VIEWS) await open(page, view);
  await open(page, '');
  const before = await memoryOf(page);

  const random = randomNumbers(SEED);
  const monkey = new Monkey(page, random);
  const end = Date.now() + MINUTES * 60_000;
  const all = faults();
  let current: Fault | undefined;
  let next = Date.now() + 1_000;
  let begun = 0;
  try {
    while (Date.now() < end) {
      if (Date.now() >= next) {
        if (current === undefined) {
          current = all[Math.floor(random() * all.length)];
          current?.begin();
          begun += 1;
          next = Date.now() + FAULT_MILLISECONDS;
        } else {
          current.end();
          current = undefined;
          next = Date.now() + PAUSE_MILLISECONDS;
        }
      }
      await monkey.step();
    }
  } finally {
    current?.end();
  }
  expect(begun).toBeGreaterThan(0);
  expect(monkey.actions).toBeGreaterThan(MINUTES * 10);

  // The page has no open dialog and shows live data again.
  for (let count = 0; count < 3; count += 1) await page.keyboard.press('Escape');
  await page.evaluate(() => {
    location.hash = '#/resources';
  });
  await expect(page.getByText('Live', { exact: true })).toBeVisible({ timeout: 180_000 });
  await expect(page.locator('dialog[open]')).toHaveCount(0);
  // Keys can confirm a drain or a stop. The tests after this one need all nodes and services.
  for (const { metadata } of stored('nodes')) hactl('uncordon', metadata.name);
  for (const { metadata, spec } of stored('resources')) if ((spec?.state ?? 'Started') !== 'Started') hactl('start', metadata.name);
  const names = stored('resources').map((object) => object.metadata.name);
  hactl('wait', ...names.map((name) => `resource/${name}`), '--for', 'condition=Ready', '--timeout', '3m');
  await expect(async () => {
    const expected = stored('resources').map((object) => `${object.metadata.name} ${object.status?.state ?? ''} ${object.status?.node ?? ''}`);
    expect(await shownServices(page)).toEqual(expected.sort());
  }).toPass({ timeout: 90_000 });
  for (const kind of KINDS) {
    for (const { metadata } of stored(kind)) {
      const view = {
        resources: `resources/${metadata.name}`,
        nodes: `nodes/${metadata.name}`,
        groups: `rules/group/${metadata.name}`,
        affinityrules: `rules/affinityrule/${metadata.name}`,
        clusters: 'cluster',
      }[kind];
      await expectEqualDefinition(page, view);
    }
  }

  await open(page, '');
  const after = await memoryOf(page);
  const mebibytes = (bytes: number) => (bytes / 2 ** 20).toFixed(1);
  console.log(
    `monkey: ${monkey.actions} actions, ${monkey.confirmed} in dialogs, ${begun} faults; heap ${mebibytes(before.heapBytes)} → ${mebibytes(after.heapBytes)} MiB, ` +
      `${before.nodes} → ${after.nodes} DOM nodes, ${before.listeners} → ${after.listeners} listeners`,
  );
  expect(after.heapBytes).toBeLessThan(before.heapBytes + HEAP_GROWTH_BYTES);
  expect(after.nodes).toBeLessThan(before.nodes * 2 + 5_000);
  expect(after.listeners).toBeLessThan(before.listeners * 2 + 500);
});
