// Writing an edited definition while others write the object.
import { expect, it } from 'vitest';
import { writeDefinition } from '../../src/actions/definition';
import { ApiError, type Client } from '../../src/api/client';
import type { StoredObject } from '../../src/api/objects';
import { editable, toYaml } from '../../src/derive/yaml';

const object = (resourceVersion: string, priority: number) =>
  ({ apiVersion: 'v', kind: 'k', metadata: { name: 'a', uid: 'u', resourceVersion, creationTimestamp: '' }, spec: { priority } }) as unknown as StoredObject;
const base = { name: 'a', text: toYaml(editable(object('1', 1))) };
const edit = { plural: 'resources' as const, text: toYaml(editable(object('1', 2))), base, isDryRun: false };

/** Returns an API that holds an object, whose status others write before each of the first writes. */
function api(stored: StoredObject, otherWrites: number) {
  const sent: string[] = [];
  const fake = {
    get: async () => structuredClone(stored),
    write: async (_method: string, _path: string, text: string) => {
      sent.push(text);
      if (sent.length <= otherWrites) stored.metadata.resourceVersion += '0';
      if (!text.includes(`resourceVersion: "${stored.metadata.resourceVersion}"`)) throw new ApiError(409, 'Conflict', 'stale');
      return { body: stored, warnings: [] };
    },
  };
  return { fake: fake as unknown as Client, sent };
}

it('writes although the status changes at the same time', async () => {
  const { fake, sent } = api(object('1', 1), 2);
  await writeDefinition(edit, fake);
  expect(sent.map((text) => /resourceVersion: "(\d+)"/.exec(text)?.[1])).toEqual(['1', '10', '100']);
});

it('reports a conflict that lasts', async () => {
  const { fake, sent } = api(object('1', 1), 99);
  await expect(writeDefinition(edit, fake)).rejects.toThrow('stale');
  expect(sent).toHaveLength(5);
});

it('does not overwrite a definition that another user changed', async () => {
  const { fake, sent } = api(object('2', 3), 0);
  await expect(writeDefinition(edit, fake)).rejects.toThrow('has changed since this text was read');
  expect(sent).toEqual([]);
});
