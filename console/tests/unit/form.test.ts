// Forms of settings from a schema.
import { expect, it } from 'vitest';
import { assignments, fieldsOf, labelBelow, labelOf, patchOf, problemOf, specOf, valuesOf } from '../../src/derive/form';

const schema = {
  properties: {
    timing: {
      properties: {
        profile: { type: 'string', enum: ['Default', 'Fast'], default: 'Default' },
        heartbeatIntervalSeconds: { type: 'number', minimum: 0.1, maximum: 60 },
      },
    },
    fencing: {
      properties: {
        maxFencing: { anyOf: [{ type: 'integer' }, { type: 'string' }], default: '50%' },
        windowSeconds: { type: 'integer', minimum: 0, maximum: 4294967295, default: 300 },
        requireTested: { type: 'boolean', default: false },
      },
    },
    tags: { type: 'array', items: { type: 'string' } },
  },
};
const fields = fieldsOf(schema, '');

it('has a field for each scalar, with its bounds', () => {
  expect(fields.map((field) => `${field.path} ${field.kind} ${field.min ?? ''}..${field.max ?? ''} ${field.default}`)).toEqual([
    'timing.profile choice .. Default',
    'timing.heartbeatIntervalSeconds number 0.1..60 ',
    'fencing.maxFencing quantity .. 50%',
    'fencing.windowSeconds integer 0.. 300',
    'fencing.requireTested boolean .. false',
    'tags list .. ',
  ]);
  expect(['timing.heartbeatIntervalSeconds', 'clockRateErrorPercent', 'maxWorkers', 'ioDrainSeconds'].map(labelOf)).toEqual([
    'Heartbeat interval (s)',
    'Clock rate error (%)',
    'Max workers',
    'I/O drain (s)',
  ]);
});

it('sends only changed fields, and null for a removed one', () => {
  const stored = valuesOf(fields, { timing: { profile: 'Fast', heartbeatIntervalSeconds: 0.5 }, fencing: { maxFencing: '50%' } });
  const values = { ...stored, 'timing.heartbeatIntervalSeconds': '', 'fencing.maxFencing': '2', 'fencing.requireTested': 'true' };
  expect(patchOf(fields, stored, stored)).toEqual({});
  expect(patchOf(fields, stored, values)).toEqual({
    timing: { heartbeatIntervalSeconds: null },
    fencing: { maxFencing: 2, requireTested: true },
  });
  expect(assignments(fields, stored, values)).toBe('timing.heartbeatIntervalSeconds= fencing.maxFencing=2 fencing.requireTested=true');
});

it('reports values outside the bounds', () => {
  const problem = (path: string, text: string) => problemOf(fields.find((field) => field.path === path) ?? fields[0]!, text);
  expect(problem('timing.heartbeatIntervalSeconds', '0.05')).toBe('must be at least 0.1');
  expect(problem('timing.heartbeatIntervalSeconds', '61')).toBe('must be at most 60');
  expect(problem('timing.heartbeatIntervalSeconds', 'x')).toBe('must be a number');
  expect(problem('fencing.windowSeconds', '1.5')).toBe('must be an integer');
  expect(problem('fencing.windowSeconds', '')).toBeUndefined();
});

it('shows lists with commas, and maps of names to numbers', () => {
  const members = fieldsOf({ properties: { nodes: { anyOf: [{ type: 'object' }, { type: 'string' }] }, tags: { type: 'array', items: { type: 'string' } } } }, '');
  const stored = valuesOf(members, { nodes: { node1: 2, node2: 0 }, tags: ['a', 'b'] });
  expect(stored).toEqual({ nodes: 'node1:2,node2', tags: 'a,b' });
  expect(patchOf(members, stored, { nodes: 'node3', tags: 'a, c,' })).toEqual({ nodes: 'node3', tags: ['a', 'c'] });
});

it('keeps a text of digits as a text', () => {
  const comment = fieldsOf({ properties: { comment: { type: 'string' } } }, '');
  expect(patchOf(comment, {}, { comment: '42' })).toEqual({ comment: '42' });
  expect(assignments(comment, {}, { comment: "it's new" })).toBe(`comment='it'\\''s new'`);
});

it('writes the spec of a new object without empty fields', () => {
  expect(specOf(fields, { 'timing.profile': 'Fast', 'fencing.maxFencing': '', tags: '' })).toEqual({ timing: { profile: 'Fast' } });
  expect([labelBelow('requests.memory', 0), labelBelow('requests.memory', 1), labelBelow('requests.cpu', 0)]).toEqual(['Requests: memory', 'Memory', 'Requests: CPU']);
});
