// The time of the first view and of an update with 50 nodes and 1,000 services. The limits allow for a slow machine.
import { expect, test } from './console';
import { LargeCluster } from './large-cluster';

const FIRST_VIEW_MILLISECONDS = 20_000;
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
