// The interactive simulator, if it serves this page: its state, its actions and its clock.
import { client } from '../api/client';
import { setClock } from './clock';
import { overview, usePolled } from './cluster';
import { Polled } from './polled';

export type ProcessState = 'Running' | 'Hung' | 'Stopped';

export interface SimulatedMachine {
  name: string;
  hasPower: boolean;
  isUp: boolean;
  isSuspended: boolean;
  hasNetwork: boolean;
  reachesEtcd: boolean;
  reachesPeers: boolean;
  hasMigrationNetwork: boolean;
  agent: ProcessState;
  /** Null if the machine has no controller. */
  controller: ProcessState | null;
  isLeader: boolean;
  hasWatchdogDaemon: boolean;
  /** Milliseconds until the watchdog resets the machine; null if it does not count. */
  watchdogMs: number | null;
  resets: number;
  services: string[];
}

export interface SimulationState {
  elapsedMs: number;
  wallUnixMs: number;
  speed: number;
  isPaused: boolean;
  isBehind: boolean;
  isEtcdAvailable: boolean;
  machines: SimulatedMachine[];
  steps: { at?: string; do?: unknown }[];
  executedSteps: number;
  timelineLength: number;
  timeline: string[];
  violations: string[];
  file: string | null;
  saveError: string | null;
}

/** Id of the interactive simulator in place of the id of a controller. */
const SIMULATOR = 'simulation';

export const simulation = new Polled<SimulationState>(client, '/simulation', 500, 100);

simulation.state.subscribe(() => {
  const { value } = simulation.state.value;
  if (value !== undefined) setClock(value.wallUnixMs);
});

/** Returns `true` if the page shows a simulated cluster. */
export function useIsSimulation(): boolean {
  return usePolled(overview).value?.answeredBy === SIMULATOR;
}

/** Executes an action of a scenario file. */
export async function sendSimulatorAction(action: string): Promise<void> {
  await client.write('POST', '/simulation/actions', { do: action });
  refresh();
}

export interface ClockChange {
  speed?: number;
  isPaused?: boolean;
  elapsedMs?: number;
  nextEvent?: boolean;
}

export async function changeClock(change: ClockChange): Promise<void> {
  await client.write('POST', '/simulation/clock', change);
  refresh();
}

/** Replaces the simulated cluster with a scenario in YAML. */
export async function loadScenario(text: string): Promise<void> {
  await client.write('POST', '/simulation/scenario', text, 'text/plain');
  refresh();
}

function refresh(): void {
  simulation.refresh();
  overview.refresh();
}
