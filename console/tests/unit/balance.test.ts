// The execution of a balancing plan: batches, failures, and cancellation.
import { expect, it } from 'vitest';
import { BalanceExecution, type BalanceMove } from '../../src/state/balance';

const move = (resource: string, from = 'node1'): BalanceMove => ({
  resource,
  with: [],
  from: [from],
  to: ['node2'],
  score: 0,
  operations: [{ action: 'Migrate', resource, node: 'node2' }],
});

/** An API in which operations end after the second request, and services are on node1. */
class Cluster {
  readonly started: string[] = [];
  private readonly polls = new Map<string, number>();

  constructor(private readonly phases: Record<string, string> = {}) {}

  async get<T>(path: string): Promise<T> {
    const name = path.split('/').pop() ?? '';
    if (path.includes('/resources/')) return { status: { node: 'node1' } } as T;
    const polls = (this.polls.get(name) ?? 0) + 1;
    this.polls.set(name, polls);
    return { status: { phase: polls < 2 ? 'Running' : (this.phases[name] ?? 'Succeeded'), message: 'reason' } } as T;
  }

  async write<T>(_method: string, _path: string, body: unknown): Promise<{ body: T; warnings: string[] }> {
    const { resource } = (body as { spec: { resource: string } }).spec;
    this.started.push(resource);
    return { body: { metadata: { name: resource } } as T, warnings: [] };
  }
}

const group = (batches: BalanceMove[][]) => ({ group: 'default', scoreBefore: 1, scoreAfter: 0, timeLimited: false, batches, nodes: [] });

it('makes the moves of each batch after those of the last one', async () => {
  const cluster = new Cluster();
  const execution = new BalanceExecution(cluster, 1);
  const total: number[] = [];
  execution.state.subscribe(() => total.push(execution.state.value.done));
  await execution.run([group([[move('a'), move('b')], [move('c')]])]);
  expect(cluster.started).toEqual(['a', 'b', 'c']);
  expect(execution.state.value).toMatchObject({ phase: 'done', done: 3, total: 3, moving: [] });
  expect(Math.max(...total)).toBe(3);
});

it('begins no batch after a failure', async () => {
  const cluster = new Cluster({ b: 'Failed' });
  const execution = new BalanceExecution(cluster, 1);
  await execution.run([group([[move('a'), move('b')], [move('c')]])]);
  expect(cluster.started).toEqual(['a', 'b']);
  expect(execution.state.value).toMatchObject({ phase: 'failed', done: 1, message: 'operation b: Failed: reason' });
});

it('begins no batch after a cancellation, and lets moves in progress end', async () => {
  const cluster = new Cluster();
  const execution = new BalanceExecution(cluster, 1);
  const running = execution.run([group([[move('a')], [move('b')]])]);
  execution.cancel();
  await running;
  expect(cluster.started).toEqual(['a']);
  expect(execution.state.value).toMatchObject({ phase: 'canceled', done: 1, total: 2 });
});

it('does not move a service that has moved since the plan', async () => {
  const cluster = new Cluster();
  const execution = new BalanceExecution(cluster, 1);
  await execution.run([group([[move('a', 'node3')]])]);
  expect(cluster.started).toEqual([]);
  expect(execution.state.value.message).toContain('plan again');
});
