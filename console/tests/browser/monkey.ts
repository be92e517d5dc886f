// A scripted monkey: random clicks, keys and texts in the console, repeatable by a seed.
import type { Page } from '@playwright/test';

/** Buttons that the monkey does not press, because they end the session or destroy what later tests need. */
const FORBIDDEN = /^(Sign out|Delete|Disarm|Arm|Apply|Confirm|Shut down|Fence|Unfence|Create|Enable maintenance|Test notifications|Cordon)/;

const TARGETS = 'a[href^="#"], button:not([disabled]), summary, select, input, textarea, [data-name], label.check';
const KEYS = ['?', '/', 'Escape', 'Escape', 'Enter', 'Tab', 'ArrowDown', 'ArrowUp', 'ArrowLeft', 'ArrowRight', 'g', 'o', 'p', 'r', 'n', 'u', 'c', 'f', 'l', 'e', 'i', 'a', 'Control+Space'];
const TEXTS = ['web', 'node1', '7', '-1', '0.5', 'x y', 'spec:', '<b>', '%', ''];

/** Returns random numbers from 0 to 1 (mulberry32). */
export function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) / 4294967296;
  };
}

export class Monkey {
  actions = 0;
  /** Number of operations that the monkey has confirmed. */
  confirmed = 0;

  constructor(
    private readonly page: Page,
    private readonly random: () => number,
  ) {}

  private pick<T>(items: T[]): T | undefined {
    return items[Math.floor(this.random() * items.length)];
  }

  /** Performs one random action. An element that disappears meanwhile is not an error. */
  async step(): Promise<void> {
    this.actions += 1;
    if (this.random() < 0.15) {
      await this.page.keyboard.press(this.pick(KEYS) ?? 'Escape');
      return;
    }
    const dialog = this.page.locator('dialog[open]');
    const scope = (await dialog.count()) > 0 ? dialog.last() : this.page.locator('body');
    const target = scope.locator(TARGETS).filter({ visible: true });
    const count = await target.count();
    if (count === 0) return;
    const element = target.nth(Math.floor(this.random() * count));
    try {
      const name = (await element.innerText({ timeout: 500 })).trim();
      const tag = await element.evaluate((node) => node.tagName, undefined, { timeout: 500 });
      if (FORBIDDEN.test(name)) return;
      if (tag === 'SELECT') {
        const values = await element.locator('option').evaluateAll((options) => options.map((option) => (option as HTMLOptionElement).value));
        await element.selectOption(this.pick(values) ?? '', { timeout: 500 });
      } else if (tag === 'TEXTAREA' || (tag === 'INPUT' && !['checkbox', 'range'].includes((await element.getAttribute('type')) ?? ''))) {
        await element.focus({ timeout: 500 });
        await this.page.keyboard.type(this.pick(TEXTS) ?? '');
      } else {
        const inDialog = (await dialog.count()) > 0;
        await element.click({ timeout: 500 });
        if (inDialog && name !== 'Cancel' && name !== 'Close' && name !== '') this.confirmed += 1;
      }
    } catch (error) {
      // Only time limits are expected: the page has changed, or something covers the element.
      if (!(error instanceof Error) || !/Timeout|intercepts pointer|detached|not visible|Element is not/.test(error.message)) throw error;
    }
  }
}

export interface Memory {
  heapBytes: number;
  nodes: number;
  listeners: number;
}

/** Returns the memory of the page after a garbage collection. */
export async function memoryOf(page: Page): Promise<Memory> {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable');
  for (let round = 0; round < 3; round += 1) await session.send('HeapProfiler.collectGarbage');
  const { metrics } = await session.send('Performance.getMetrics');
  const value = (name: string) => metrics.find((metric) => metric.name === name)?.value ?? 0;
  const memory = { heapBytes: value('JSHeapUsedSize'), nodes: value('Nodes'), listeners: value('JSEventListeners') };
  await session.detach();
  return memory;
}
