// The time of the first view and of an update of large clusters. The limits allow for a slow machine.
import { expect, test } from './console';
import { LargeCluster } from './large-cluster';

const FIRST_VIEW_MILLISECONDS = 20_000;
const AGGREGATED_VIEW_MILLISECONDS = 60_000;
const UPDATE_MILLISECONDS = 10_000;

test('50 nodes with 1,000 services are shown and updated quickly', async ({ page }) => {
  const cluster = new LargeCluster(50, 1000);
  const origin = await cluster.start();
  try {
    const start = performance.now();
    await page.goto(`${origin}/console/`);
    await expect(page.locator('.headline')).toContainText('All 1000 services run.');
    const firstView = performance.now() - start;
    await page.goto(`${origin}/console/#/placement`);
    await expect(page.locator('[data-name]')).toHaveCount(1000);
    // The page notes the time itself, because the test only polls.
    const observed = page.evaluate(
      () =>
        new Promise<number>((resolve) => {
          const look = () => {
            if (document.querySelector('[data-node=node2] [data-name=service1]') !== null) resolve(Date.now());
            else requestAnimationFrame(look);
          };
          look();
        }),
    );
    // The observation must have begun.
    await page.evaluate(() => undefined);
    const moved = Date.now();
    cluster.move(0, 'node2');
    const update = (await observed) - moved;
    console.log(`first view ${Math.round(firstView)} ms, update ${update} ms, with 50 nodes and 1,000 services`);
    expect(firstView).toBeLessThan(FIRST_VIEW_MILLISECONDS);
    expect(update).toBeLessThan(UPDATE_MILLISECONDS);
    await page.goto(`${origin}/console/#/resources?filter=service77`);
    await expect(page.locator('tbody tr')).toHaveCount(11);
  } finally {
    cluster.stop();
  }
});

test('1,000 nodes with 100,000 services are shown by group, then by node', async ({ page }) => {
  const cluster = new LargeCluster(1000, 100_000, 20);
  const origin = await cluster.start();
  try {
    const start = performance.now();
    await page.goto(`${origin}/console/#/placement`);
    const groups = page.getByRole('list', { name: 'Groups of nodes' });
    await expect(groups.getByRole('listitem')).toHaveCount(20);
    const view = performance.now() - start;
    await expect(groups.getByRole('button', { name: 'rack7' })).toContainText('50 nodes, 5000 services');
    await groups.getByRole('button', { name: 'rack7' }).click();
    await expect(page.locator('[data-tile]')).toHaveCount(50);
    const moved = performance.now();
    // service1 is on node1; node7 belongs to rack7.
    cluster.move(0, 'node7');
    await expect(page.locator('[data-tile=node7]')).toContainText('101 services');
    const update = performance.now() - moved;
    await page.locator('[data-tile=node7]').click();
    await expect(page.locator('[data-node=node7] [data-name=service1]')).toBeVisible();
    await expect(page.locator('[data-name]')).toHaveCount(101);
    await page.getByRole('link', { name: 'All groups' }).click();
    await expect(groups.getByRole('listitem')).toHaveCount(20);
    const heap = await page.evaluate(() => (performance as unknown as { memory: { usedJSHeapSize: number } }).memory.usedJSHeapSize);
    console.log(
      `first view ${Math.round(view)} ms, update ${Math.round(update)} ms, heap ${Math.round(heap / 2 ** 20)} MiB, with 1,000 nodes and 100,000 services`,
    );
    expect(view).toBeLessThan(AGGREGATED_VIEW_MILLISECONDS);
  } finally {
    cluster.stop();
  }
});
