// The views of the navigation, with their keys.
import { useMemo } from 'preact/hooks';
import type { IconName } from './parts/icon';
import { isAllowed, session } from './state/session';
import { useSignal } from './state/signal';
import { useIsSimulation } from './state/simulation';

/** Path of the view of the interactive simulator. */
export const SIMULATION_PATH = 'simulation';

export interface NavigationEntry {
  path: string;
  title: string;
  icon: IconName;
  key: string;
}

const NAVIGATION_ENTRIES: NavigationEntry[] = [
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

const AUDIT_ENTRY: NavigationEntry = { path: 'audit', title: 'Audit', icon: 'audit', key: 'a' };
const SIMULATION_ENTRY: NavigationEntry = { path: SIMULATION_PATH, title: 'Simulation', icon: 'simulation', key: 's' };

/** Returns the views: with the audit log for admins, and with the simulation if the interactive simulator serves the page. */
export function useNavigationEntries(): NavigationEntry[] {
  const isSimulation = useIsSimulation();
  const state = useSignal(session);
  const isAdmin = state.phase === 'signedIn' && isAllowed(state.user, { verb: 'get', resource: 'audit' });
  return useMemo(
    () => [...NAVIGATION_ENTRIES, ...(isAdmin && !isSimulation ? [AUDIT_ENTRY] : []), ...(isSimulation ? [SIMULATION_ENTRY] : [])],
    [isAdmin, isSimulation],
  );
}
