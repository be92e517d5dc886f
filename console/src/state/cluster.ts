// The live state of the cluster that all views read, and the hooks to read it.
import { useEffect } from 'preact/hooks';
import { client } from '../api/client';
import type { ObjectsByPlural, Overview, PlacementHistory, PluralName, ReservationReport, UsageOverview } from '../api/objects';
import { Collection, type CollectionState } from './collection';
import { Polled, type PolledState } from './polled';
import { useSignal } from './signal';

const collections: { [P in PluralName]: Collection<P> } = {
  resources: new Collection(client, 'resources'),
  nodes: new Collection(client, 'nodes'),
  groups: new Collection(client, 'groups'),
  affinityrules: new Collection(client, 'affinityrules'),
  nodegroups: new Collection(client, 'nodegroups'),
  clusters: new Collection(client, 'clusters'),
  operations: new Collection(client, 'operations'),
  events: new Collection(client, 'events'),
};

export const overview = new Polled<Overview>(client, '/apis/hactl.io/v1/status', 1000, 250, 4000);
export const usage = new Polled<UsageOverview>(client, '/apis/hactl.io/v1/usage', 5000, 500);
export const reservation = new Polled<ReservationReport>(
  client,
  '/apis/hactl.io/v1/reservation?failures=1&proof=true',
  15000,
  2000,
);

/** Changes of the last hour, while the replay is shown. */
export const history = new Polled<PlacementHistory>(client, '/apis/hactl.io/v1/history', 10_000, 2000);

for (const plural of ['resources', 'nodes'] as const) {
  collections[plural].state.subscribe(() => {
    overview.refresh();
    usage.refresh();
    reservation.refresh();
  });
}

overview.state.subscribe(() => {
  const { value, error } = overview.state.value;
  if (value !== undefined && error === undefined) {
    client.controllers.learn(value.controllers.map((controller) => controller.url));
  }
});

/** Interval at which the page checks whether its own controller answers again. */
const RETURN_MILLISECONDS = 5000;

setInterval(() => void client.returnToOwn(), RETURN_MILLISECONDS);

/** Returns the open collections, by their plural names. */
export function openCollections(): [PluralName, CollectionState<unknown>][] {
  const names = Object.keys(collections) as PluralName[];
  return names
    .filter((name) => collections[name].isOpen)
    .map((name) => [name, collections[name].state.value]);
}

/** Calls a function after each change of a collection or of the overview. */
export function onStateChange(listener: () => void): () => void {
  const ends = Object.values(collections).map((collection) => collection.state.subscribe(listener));
  ends.push(overview.state.subscribe(listener));
  return () => ends.forEach((end) => end());
}

/** Returns the objects of a kind, and keeps them live while the component is shown; undefined until they are known. */
export function useObjects<P extends PluralName>(plural: P): ObjectsByPlural[P][] | undefined {
  const collection = collections[plural] as Collection<P>;
  useEffect(() => collection.open(), [collection]);
  return useSignal(collection.state).items;
}

/** Returns the last answer, and reads it repeatedly while the component is shown. */
export function usePolled<T>(polled: Polled<T>): PolledState<T> {
  useEffect(() => polled.open(), [polled]);
  return useSignal(polled.state);
}

/** Returns the objects that are known now, without rendering again. */
export function knownObjects<P extends PluralName>(plural: P): ObjectsByPlural[P][] {
  return (collections[plural] as Collection<P>).state.value.items ?? [];
}
