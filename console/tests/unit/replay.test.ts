// The replay of the last hour.
import { expect, it } from 'vitest';
import type { Overview, Resource } from '../../src/api/objects';
import { changesUntil, describe, nextChange, rewind, type Change } from '../../src/derive/replay';

const resource = (name: string, node: string | null, state = 'Started') =>
  ({ apiVersion: 'hactl.io/v1', kind: 'Resource', metadata: { name, uid: name, resourceVersion: '1', creationTimestamp: '' }, status: { node, state } }) as unknown as Resource;
const overview = { nodes: [{ name: 'node1', state: 'Fence' }, { name: 'node2', state: 'Online' }] } as unknown as Overview;
const at = (minute: number) => `2026-01-01T10:${String(minute).padStart(2, '0')}:00Z`;
const time = (minute: number) => Date.parse(at(0)) + minute * 60_000;

const changes: Change[] = [
  { time: at(5), kind: 'Resource', name: 'old', before: { node: 'node2', state: 'Started' }, after: null },
  { time: at(10), kind: 'Node', name: 'node1', before: { state: 'Online' }, after: { state: 'Unknown' } },
  { time: at(11), kind: 'Node', name: 'node1', before: { state: 'Unknown' }, after: { state: 'Fence' } },
  { time: at(11), kind: 'Resource', name: 'web', before: { node: 'node1', state: 'Started' }, after: { node: 'node1', state: 'Fence' } },
  { time: at(12), kind: 'Resource', name: 'web', before: { node: 'node1', state: 'Fence' }, after: { node: 'node2', state: 'Started' } },
  { time: at(20), kind: 'Resource', name: 'new', before: null, after: { node: 'node2', state: 'Started' } },
];
const present = { resources: [resource('mail', 'node2'), resource('new', 'node2'), resource('web', 'node2')], overview };

const places = (minute: number) => {
  const moment = rewind(present, changes, time(minute));
  const services = moment.resources.map((item) => `${item.metadata.name} ${item.status?.node} ${item.status?.state}`);
  return [...services.sort(), ...moment.overview.nodes.map((node) => `${node.name} ${node.state}`)];
};

it('leads back to each earlier state', () => {
  expect(places(30)).toEqual(['mail node2 Started', 'new node2 Started', 'web node2 Started', 'node1 Fence', 'node2 Online']);
  expect(places(11.5)).toEqual(['mail node2 Started', 'web node1 Fence', 'node1 Fence', 'node2 Online']);
  expect(places(10)).toEqual(['mail node2 Started', 'web node1 Started', 'node1 Unknown', 'node2 Online']);
  expect(places(1)).toEqual(['mail node2 Started', 'old node2 Started', 'web node1 Started', 'node1 Online', 'node2 Online']);
  expect(present.resources).toHaveLength(3);
});

it('finds and describes changes', () => {
  expect(nextChange(changes, time(5), 1)).toBe(time(10));
  expect(nextChange(changes, time(5), -1)).toBeUndefined();
  expect(nextChange(changes, time(12), -1)).toBe(time(11));
  expect(nextChange(changes, time(20), 1)).toBeUndefined();
  expect(changesUntil(changes, time(12), 2).map(describe)).toEqual(['web: node1 → node2, Fence → Started', 'web: Started → Fence']);
  expect(describe(changes[0]!)).toBe('old was deleted');
  expect(describe(changes[5]!)).toBe('new was added: Started on node2');
  expect(describe(changes[1]!)).toBe('Node node1: Online → Unknown');
});
