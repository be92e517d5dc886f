// Completion in the YAML editor.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { complete } from '../../src/derive/completion';
import type { Schema } from '../../src/derive/schema';

const schemaOf = (kind: string) =>
  JSON.parse(readFileSync(new URL(`../../../docs/schemas/${kind}.json`, import.meta.url), 'utf8')) as Schema;

/** Returns the labels at the mark `|` of the text. */
function labels(kind: string, marked: string): string[] {
  const offset = marked.indexOf('|');
  const found = complete(marked.replace('|', ''), offset, schemaOf(kind));
  return (found?.suggestions ?? []).map((suggestion) => suggestion.label);
}

it('suggests the fields of the mapping at the caret, without those that it has', () => {
  expect(labels('resource', 'kind: Resource\n|\n')).toEqual(expect.arrayContaining(['metadata', 'spec']));
  expect(labels('resource', '|')).not.toContain('status');
  expect(labels('resource', 'spec:\n  pri|')).toEqual(['priority']);
  expect(labels('resource', 'spec:\n  maxRe|\n  maxRestart: 3')).toEqual(['maxRelocate']);
  expect(labels('resource', 'spec:\n  driver:\n    sys|')).toEqual(['systemd']);
  expect(labels('resource', 'spec:\n  driver:\n    podman:\n      image: x\n  dri|')).toEqual([]);
  expect(labels('resource', 'spec:\n  driver:\n    podman:\n      image: x\n      po|')).toContain('ports');
});

it('suggests values of enumerations and booleans', () => {
  expect(labels('cluster', 'spec:\n  timing:\n    profile: |')).toEqual(['Default', 'Fast', 'Conservative']);
  expect(labels('cluster', 'spec:\n  timing:\n    profile: Fa|')).toEqual(['Fast', 'Default']);
  expect(labels('cluster', 'spec:\n  reservation:\n    enabled: t|')).toEqual(['true']);
  expect(labels('affinityrule', 'spec:\n  resourceAffinity:\n    resources: [a]\n    affinity: |')).toEqual(['Positive', 'Negative']);
});

it('knows the items of lists', () => {
  const ports = 'spec:\n  driver:\n    podman:\n      ports:\n      - containerPort: 80\n        pro|';
  expect(labels('resource', ports)).toEqual(['protocol']);
  expect(labels('resource', ports.replace('pro|', 'protocol: |'))).toEqual(['TCP', 'UDP']);
  expect(labels('cluster', 'spec:\n  notifications:\n    webhooks:\n    - url: x\n      bear|')).toEqual(['bearerTokenFile']);
  expect(labels('cluster', 'spec:\n  notifications:\n    kinds:\n    - NodeF|')).toEqual(['NodeFenced']);
});

it('continues a mapping and a list on the next line', () => {
  const text = (marked: string) => {
    const offset = marked.indexOf('|');
    return complete(marked.replace('|', ''), offset, schemaOf('resource'))?.suggestions[0]?.text;
  };
  expect(text('spec:\n  requ|')).toBe('requests:\n    ');
  expect(text('spec:\n  dependsO|')).toBe('dependsOn:\n  - ');
  expect(text('spec:\n  prior|')).toBe('priority: ');
});

it('suggests nothing within text', () => {
  expect(labels('resource', 'spec:\n  pri|ority: 3')).toEqual([]);
  expect(labels('resource', 'spec:\n  comment: some text|')).toEqual([]);
});
