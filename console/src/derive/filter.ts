// The filters of the lists: words, and for resources also a state and a node.
import type { Resource } from '../api/objects';
import { typeOf } from './names';

export interface ResourceFilter {
  text: string;
  state: string;
  node: string;
}

/** Returns `true` if some of the texts contains each word, in upper or lower case. */
export function containsWords(texts: (string | null | undefined)[], words: string): boolean {
  const joinedTexts = texts.join(' ').toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => joinedTexts.includes(word));
}

export function matches(resource: Resource, filter: ResourceFilter): boolean {
  const { name, labels } = resource.metadata;
  const state = resource.status?.state ?? '';
  const node = resource.status?.node ?? '';
  if (filter.state !== '' && state !== filter.state) return false;
  if (filter.node !== '' && node !== filter.node) return false;
  const tags = [...Object.entries(labels ?? {}).map(([key, value]) => `${key}=${value}`), ...(resource.spec?.tags ?? [])];
  return containsWords([`${typeOf(resource)}:${name}`, state, node, resource.spec?.group, ...tags], filter.text);
}

/** Returns the different values of a field, sorted. */
export function distinctValues(resources: Resource[], read: (resource: Resource) => string | null | undefined): string[] {
  const values = resources.map(read).filter((value): value is string => value !== null && value !== undefined && value !== '');
  return [...new Set(values)].sort();
}
