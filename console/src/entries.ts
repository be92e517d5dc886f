// The views of the navigation, with their keys.
import type { IconName } from './parts/icon';
import { useIsSimulation } from './state/simulation';

/** Path of the view of the interactive simulator. */
export const SIMULATION = 'simulation';

export interface Entry {
  path: string;
  title: string;
  icon: IconName;
  key: string;
}

const ENTRIES: Entry[] = [
  { path: '', title: 'Overview', icon: 'overview', key: 'o' },
  { path: 'placement', title: 'Placement', icon: 'placement', key: 'p' },
  { path: 'resources', title: 'Resources', icon: 'resources', key: 'r' },
  { path: 'nodes', title: 'Nodes', icon: 'nodes', key: 'n' },
  { path: 'rules', title: 'Rules and groups', icon: 'rules', key: 'u' },
  { path: 'capacity', title: 'Capacity', icon: 'capacity', key: 'c' },
  { path: 'fencing', title: 'Fencing', icon: 'fencing', key: 'f' },
  { path: 'cluster', title: 'Cluster', icon: 'cluster', key: 'l' },
  { path: 'events', title: 'Events', icon: 'events', key: 'e' },
  { path: 'operations', title: 'Operations', icon: 'operations', key: 'i' },
];

const WITH_SIMULATION: Entry[] = [...ENTRIES, { path: SIMULATION, title: 'Simulation', icon: 'simulation', key: 's' }];

/** Returns the views, with that of the interactive simulator if it serves the page. */
export function useEntries(): Entry[] {
  return useIsSimulation() ? WITH_SIMULATION : ENTRIES;
}
