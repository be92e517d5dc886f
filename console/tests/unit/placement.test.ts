// The layout of the placement view.
import { expect, it } from 'vitest';
import type { AffinityRule } from '../../src/api/objects';
import { afterFailure, failureOf, movesOf, relations, summarize, type Column } from '../../src/derive/placement';
import { targetsOf } from '../../src/parts/move';

const block = (name: string) => ({ name, type: 'exec', state: 'Started', tone: 'ok' as const, size: 1 });
const column = (node: string, names: string[]): Column => ({
  node,
  group: '',
  state: 'Online',
  capacity: 10,
  allocated: names.length,
  headroom: 0,
  blocks: names.map(block),
  failed: false,
});

const lack = { node: 'node2', reason: 'NodeAffinity' as const, message: 'node is excluded by a rule' };
const item = {
  what: 'node node1',
  nodes: ['node1'],
  verdict: 'Fails' as const,
  because: 'no eligible node',
  withoutPlace: [{ resource: 'pinned', node: 'node1', lacks: [lack], more: 0 }],
};

it('moves services of a failed node, and keeps those without an eligible node with the reason', () => {
  const before = [column('node1', ['web', 'pinned']), column('node2', ['mail'])];
  const after = afterFailure(before, 'node1', item, [{ resource: 'web', from: 'node1', to: 'node2' }]);
  expect(after[0]).toMatchObject({ failed: true, blocks: [{ name: 'pinned', blockingReasons: ['node2: node is excluded by a rule'] }] });
  expect(after[1]?.blocks.map((block) => [block.name, block.movedFrom])).toEqual([
    ['mail', undefined],
    ['web', 'node1'],
  ]);
  expect(before[0]?.blocks).toHaveLength(2);
});

it('selects the report about one node, and the moves of a plan', () => {
  const report = { items: [{ ...item, nodes: ['node1', 'node2'] }, item] } as Parameters<typeof failureOf>[1];
  expect(failureOf('node1', report)).toBe(item);
  expect(failureOf('node3', report)).toBeUndefined();
  const effect = (resource: string, to?: string) => ({ resource, effect: 'Migrate' as const, from: 'node1', reason: 'PlacementChanged' as const, ...(to === undefined ? {} : { to }) });
  const plan = { effects: [effect('web', 'node2'), effect('pinned')], waitingFor: [], warnings: [] };
  expect(movesOf(plan, 'node1')).toEqual([{ resource: 'web', from: 'node1', to: 'node2' }]);
});

it('names the services that a rule relates', () => {
  const rule = (name: string, affinity: 'Positive' | 'Negative', resources: string[]) =>
    ({ metadata: { name }, spec: { resourceAffinity: { resources, affinity, strict: true } } }) as unknown as AffinityRule;
  const rules = [rule('apart', 'Negative', ['exec:web1', 'web2']), rule('together', 'Positive', ['a', 'b'])];
  expect(relations('web1', rules)).toEqual({
    related: [{ name: 'web2', kind: 'Negative' }],
    sentences: ['Rule apart: different node than web2'],
  });
  // The API omits fields that have their default.
  const short = { metadata: { name: 'short' }, spec: { resourceAffinity: { resources: ['a', 'b'] } } } as unknown as AffinityRule;
  expect(relations('a', [short])).toEqual({ related: [{ name: 'b', kind: 'Positive' }], sentences: ['Rule short: same node as b'] });
});

it('offers only nodes that are eligible for every service', () => {
  const verdict = (node: string, allowed: boolean, current = false) => ({ node, allowed, current, chosen: false, causes: [{ reason: 'NodeAffinity' as const, message: `${node} refused` }] });
  const explanation = (resource: string, nodes: ReturnType<typeof verdict>[]) =>
    ({ resource, nodes }) as unknown as Parameters<typeof targetsOf>[0][number];
  const targets = targetsOf([
    explanation('a', [verdict('node1', true, true), verdict('node2', true)]),
    explanation('b', [verdict('node1', true), verdict('node2', false)]),
  ]);
  expect(targets).toEqual([
    { node: 'node1', reasons: [] },
    { node: 'node2', reasons: ['node2 refused'] },
  ]);
});

it('summarizes the nodes of each group', () => {
  const failing = { ...block('bad'), tone: 'bad' as const };
  const all = [
    { ...column('node1', ['web', 'mail']), group: 'a' },
    { ...column('node2', []), group: 'a', blocks: [failing], state: 'Unknown' },
    column('node3', ['queue']),
  ];
  expect(summarize(all).map(({ columns, ...summary }) => ({ ...summary, nodes: columns.length }))).toEqual([
    { group: 'a', nodes: 2, services: 3, unhealthy: 1, unavailable: 1, capacity: 20, allocated: 2 },
    { group: '', nodes: 1, services: 1, unhealthy: 0, unavailable: 0, capacity: 10, allocated: 1 },
  ]);
});
