// YAML, differences, quantities, times and addresses.
import { expect, it } from 'vitest';
import { parseWarnings } from '../../src/api/client';
import { commandsIn, actionOf } from '../../src/actions/suggested';
import { difference, withContext } from '../../src/derive/difference';
import { bytesText, coresText, parseQuantity } from '../../src/derive/quantity';
import { search } from '../../src/derive/search';
import { durationText } from '../../src/derive/time';
import { editable, toYaml, withResourceVersion } from '../../src/derive/yaml';
import { address, objectAddress, parseRoute } from '../../src/router';

it('writes YAML that keeps the types of values', () => {
  const text = toYaml({
    kind: 'Resource',
    metadata: { name: 'web', labels: {}, annotations: { 'a.b/c': 'yes' } },
    spec: { command: ['sh', '-c', 'exit 7'], port: '8080', count: 3, on: true, empty: [], list: [{ a: 1, b: 'x: y' }] },
  });
  expect(text).toBe(`kind: Resource
metadata:
  name: web
  labels: {}
  annotations:
    a.b/c: "yes"
spec:
  command:
  - sh
  - "-c"
  - exit 7
  port: "8080"
  count: 3
  "on": true
  empty: []
  list:
  - a: 1
    b: "x: y"
`);
});

it('writes texts of several lines as blocks', () => {
  expect(toYaml({ a: 'one\n\ntwo\n', b: 'x\ny' })).toBe('a: |\n  one\n\n  two\nb: |-\n  x\n  y\n');
});

it('edits neither the status nor the fields that the API sets', () => {
  const object = { apiVersion: 'v', kind: 'k', metadata: { name: 'a', uid: 'u', managedFields: [] }, spec: { x: 1 }, status: {} };
  expect(editable(object)).toEqual({ apiVersion: 'v', kind: 'k', metadata: { name: 'a' }, spec: { x: 1 } });
});

it('adds the version that a write replaces', () => {
  const text = toYaml({ kind: 'k', metadata: { name: 'a' }, spec: { metadata: { name: 'b' } } });
  expect(withResourceVersion(text, '7')).toBe(text.replace('  name: a', '  resourceVersion: "7"\n  name: a'));
  const stated = 'metadata:\n  resourceVersion: "3"\n  name: a\n';
  expect(withResourceVersion(stated, '7')).toBe(stated);
});

it('finds changed lines', () => {
  const lines = difference('a\nb\nc\nd\ne', 'a\nb\nx\nd\ne');
  expect(lines.filter((line) => line.sign !== ' ')).toEqual([
    { sign: '-', text: 'c' },
    { sign: '+', text: 'x' },
  ]);
  expect(withContext(lines, 1).map((line) => line.text)).toEqual(['b', 'c', 'x', 'd']);
  expect(withContext(difference('a', 'a'))).toEqual([]);
});

it('reads quantities and shows numbers', () => {
  expect([parseQuantity('500m'), parseQuantity('2Gi'), parseQuantity('1.5'), parseQuantity(3), parseQuantity('1e3'), parseQuantity('x'), parseQuantity(null)]).toEqual([
    0.5,
    2 ** 31,
    1.5,
    3,
    1000,
    undefined,
    undefined,
  ]);
  expect([bytesText(0), bytesText(1536), bytesText(2 ** 31), coresText(1), coresText(0.25)]).toEqual(['0 B', '1.5 KiB', '2 GiB', '1 core', '0.25 cores']);
  expect([durationText(0.9), durationText(119), durationText(300), durationText(7300), durationText(200000)]).toEqual(['0 s', '119 s', '5 min', '2 h', '2 d']);
});

it('reads warnings from a joined header', () => {
  expect(parseWarnings('299 - "a, b", 299 - "say \\"c\\""')).toEqual(['a, b', 'say "c"']);
  expect(parseWarnings(null)).toEqual([]);
});

it('finds hactl lines in suggested actions', () => {
  expect(commandsIn('run "hactl why web" or "hactl clear-error web"')).toEqual(['hactl why web', 'hactl clear-error web']);
  expect(commandsIn('hactl describe rule apart')).toEqual(['hactl describe rule apart']);
  expect(commandsIn('add memory')).toEqual([]);
});

it('turns suggested lines into actions only if they are complete', () => {
  const node = { apiVersion: 'hactl.io/v1' as const, kind: 'Node' as const, metadata: { name: 'node1', uid: '', resourceVersion: '', creationTimestamp: '' }, status: { internal: { epoch: 3 }, bootId: 'b' } };
  const commandOf = (line: string) => actionOf(line, [node])?.command;
  expect(commandOf('hactl clear-error vm:web')).toBe('hactl clear-error web');
  expect(commandOf('hactl node confirm-fenced node1')).toBe('hactl node confirm-fenced node1');
  expect(actionOf('hactl node confirm-fenced node1', [node])?.warning).toContain('Data loss');
  expect(commandOf('hactl node maintenance disable node1')).toBe('hactl node maintenance disable node1');
  expect(commandOf('hactl arm')).toBe('hactl arm');
  for (const line of ['hactl set node/NODE storagePools=POOL', 'hactl why web', 'hactl start web --not-on node1', 'hactl node confirm-fenced node9']) {
    expect(commandOf(line)).toBeUndefined();
  }
});

it('ranks the beginning of a name first', () => {
  const entries = ['reweb', 'web', 'node web'].map((title) => ({ title, detail: 'Resource' }));
  expect(search(entries, 'web', 3).map((entry) => entry.title)).toEqual(['web', 'node web', 'reweb']);
  expect(search(entries, 'resource re', 3)).toHaveLength(3);
  expect(search(entries, 'nothing', 3)).toEqual([]);
});

it('keeps names in addresses', () => {
  const to = address(['resources', 'a b/c'], { filter: 'x y', empty: '' });
  expect(to).toBe('#/resources/a%20b%2Fc?filter=x+y');
  const route = parseRoute(to);
  expect(route.parts).toEqual(['resources', 'a b/c']);
  expect(route.parameters.get('filter')).toBe('x y');
  expect(objectAddress('AffinityRule', 'apart')).toBe('#/rules/affinityrule/apart');
  expect(objectAddress('etcd', '')).toBeUndefined();
});
