// The replay of the last hour: the changes that a controller saw lead back from the present state to an earlier one.
import type { Overview, PlacementHistory, Resource } from '../api/objects';

export type Change = PlacementHistory['changes'][number];

export interface PlacementSnapshot {
  resources: Resource[];
  overview: Overview;
}

/** Returns the state at a time, in milliseconds since 1970. */
export function rewind(present: PlacementSnapshot, changes: Change[], time: number): PlacementSnapshot {
  const later = changes.filter((change) => Date.parse(change.time) > time);
  // The first change after the time has the state before it.
  const before = { Resource: new Map<string, Change['before']>(), Node: new Map<string, Change['before']>() };
  for (const change of [...later].reverse()) {
    if (change.kind === 'Resource' || change.kind === 'Node') before[change.kind].set(change.name, change.before);
  }
  const known = new Map(present.resources.map((resource) => [resource.metadata.name, resource]));
  const names = new Set([...known.keys(), ...before.Resource.keys()]);
  const resources = [...names].flatMap((name) => {
    const resource = known.get(name);
    if (!before.Resource.has(name)) return resource === undefined ? [] : [resource];
    const state = before.Resource.get(name);
    return state == null ? [] : [earlierResource(resource, name, state)];
  });
  const nodes = present.overview.nodes.flatMap((node) => {
    if (!before.Node.has(node.name)) return [node];
    const state = before.Node.get(node.name);
    return state == null ? [] : [{ ...node, state: state.state as typeof node.state }];
  });
  return { resources, overview: { ...present.overview, nodes } };
}

/** Returns a resource with an earlier node and state. A deleted resource has nothing else. */
function earlierResource(resource: Resource | undefined, name: string, state: NonNullable<Change['before']>): Resource {
  const base = resource ?? {
    apiVersion: 'hactl.io/v1' as const,
    kind: 'Resource' as const,
    metadata: { name, uid: name, resourceVersion: '', creationTimestamp: '' },
  };
  const status = {
    ...base.status,
    state: state.state as NonNullable<Resource['status']>['state'],
    node: state.node ?? null,
    // Conditions describe the present. A started service counts as running, because the history contains no conditions.
    conditions: [{ type: 'Ready', status: state.state === 'Started' ? 'True' : 'False' }],
  };
  return { ...base, status } as Resource;
}

/** Returns the last changes up to a time, newest first. */
export function changesUntil(changes: Change[], time: number, count: number): Change[] {
  return changes
    .filter((change) => Date.parse(change.time) <= time)
    .slice(-count)
    .reverse();
}

/** Returns the time of the next change in a direction; undefined if there is none. */
export function nextChange(changes: Change[], time: number, direction: 1 | -1): number | undefined {
  const times = changes.map((change) => Date.parse(change.time));
  if (direction === 1) return times.find((at) => at > time);
  return times.filter((at) => at < time).pop();
}

/** Returns a change as a sentence. */
export function describe({ kind, name, before, after }: Change): string {
  if (kind === 'Node') {
    if (after == null) return `Node ${name} was removed`;
    return before == null ? `Node ${name} was added: ${after.state}` : `Node ${name}: ${before.state} → ${after.state}`;
  }
  if (after == null) return `${name} was deleted`;
  const place = (node: string | null | undefined) => node ?? 'no node';
  if (before == null) return `${name} was added: ${after.state} on ${place(after.node)}`;
  const parts = [];
  if (before.node !== after.node) parts.push(`${place(before.node)} → ${place(after.node)}`);
  if (before.state !== after.state) parts.push(`${before.state} → ${after.state}`);
  return `${name}: ${parts.join(', ')}`;
}
