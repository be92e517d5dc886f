// Events as a timeline: newest first, filtered by object, with the link from a recovery to the failure that caused it.
import type { ClusterEvent } from '../api/objects';
import { containsWords } from './filter';

/** Returns the time of an event in milliseconds. */
export function timeOf(event: ClusterEvent): number {
  return Date.parse(event.lastTimestamp ?? event.firstTimestamp ?? event.metadata.creationTimestamp) || 0;
}

/** Returns the events, newest first. */
export function newestFirst(events: ClusterEvent[]): ClusterEvent[] {
  return [...events].sort((a, b) => timeOf(b) - timeOf(a) || (a.metadata.name < b.metadata.name ? 1 : -1));
}

export function isAbout(event: ClusterEvent, kind: string, name: string): boolean {
  const matches = (one: ClusterEvent['involvedObject'] | undefined) => one?.kind === kind && one.name === name;
  return matches(event.involvedObject) || matches(event.related);
}

export function matchesText(event: ClusterEvent, text: string): boolean {
  return containsWords([event.involvedObject.kind, event.involvedObject.name, event.reason, event.message], text);
}
