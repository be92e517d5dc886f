// Actions on nodes, with the warnings of hactl.
import type { Node } from '../api/objects';
import { operationAction, patchAction, type Action } from './action';

export function enableMaintenance(name: string): Action {
  return {
    label: 'Enable maintenance',
    title: `Move services away from ${name} and block new ones`,
    command: `hactl node maintenance enable ${name}`,
    ...patchAction('nodes', name, { spec: { maintenance: true } }, '/maintenance'),
  };
}

export function disableMaintenance(name: string): Action {
  return {
    label: 'End maintenance',
    title: `End the maintenance of ${name}`,
    command: `hactl node maintenance disable ${name}`,
    ...patchAction('nodes', name, { spec: { maintenance: false } }, '/maintenance'),
  };
}

export function cordon(name: string): Action {
  return {
    label: 'Cordon',
    title: `Block new services on ${name}`,
    command: `hactl cordon ${name}`,
    ...patchAction('nodes', name, { spec: { unschedulable: true } }, '/maintenance'),
  };
}

export function uncordon(name: string): Action {
  return {
    label: 'Uncordon',
    title: `Allow new services on ${name} and end its maintenance`,
    command: `hactl uncordon ${name}`,
    ...patchAction('nodes', name, { spec: { unschedulable: false, maintenance: false } }, '/maintenance'),
  };
}

export function fence(name: string): Action {
  return {
    label: 'Fence',
    title: `Fence ${name}`,
    command: `hactl node fence ${name}`,
    warning: `Fencing stops ${name} without a shutdown, as in a power failure. Its fence devices act immediately.`,
    ...operationAction({ action: 'Fence', node: name }),
  };
}

export function testWatchdog(node: Node): Action {
  const { name } = node.metadata;
  const watchdog = node.status?.watchdog?.identity ?? 'the watchdog';
  return {
    label: 'Test watchdog',
    title: `Test the watchdog of ${name}`,
    command: `hactl node test-watchdog ${name}`,
    warning: `${watchdog} resets ${name} without a shutdown. Data that is not on disk is lost. The test is refused unless the node is in maintenance and runs no services.`,
    ...operationAction({ action: 'TestWatchdog', node: name, ...bootOf(node) }),
  };
}

export function confirmFenced(node: Node): Action {
  const { name } = node.metadata;
  return {
    label: 'Confirm powered off',
    title: `Confirm that ${name} is powered off`,
    command: `hactl node confirm-fenced ${name}`,
    warning: `Data loss if ${name} still runs: its services would run twice. Confirm, at the machine itself, that ${name} is powered off.`,
    ...operationAction({ action: 'ConfirmFenced', node: name, ...epochOf(node), ...bootOf(node) }),
  };
}

export function unfence(node: Node): Action {
  const { name } = node.metadata;
  return {
    label: 'Unfence',
    title: `Reconnect ${name} after fencing by a fabric device`,
    command: `hactl node unfence ${name}`,
    warning: `Data loss if a service that was started before fencing still runs on ${name}: the service would run twice. Confirm, at the machine itself, that no such service runs.`,
    ...operationAction({ action: 'Unfence', node: name, ...epochOf(node), ...bootOf(node) }),
  };
}

export function continueShutdown(node: Node): Action {
  const { name } = node.metadata;
  return {
    label: 'Continue shutdown',
    title: `Continue the shutdown of ${name} without waiting for its services`,
    command: `hactl node shutdown-continue ${name}`,
    ...operationAction({ action: 'ShutdownContinue', node: name, ...bootOf(node) }),
  };
}

export function followStore(name: string): Action {
  return {
    label: 'Follow this etcd',
    title: `Permit ${name} to use the data of this etcd`,
    command: `hactl node follow-store ${name}`,
    warning: `Data loss if the former etcd of ${name} is still in use: services may run twice.`,
    ...operationAction({ action: 'FollowStore', node: name }),
  };
}

// The identity that the operator saw guards against a confirmation about another boot of the machine.
function bootOf(node: Node): { bootId?: string } {
  const bootId = node.status?.bootId ?? '';
  return bootId === '' ? {} : { bootId };
}

function epochOf(node: Node): { epoch?: number } {
  const epoch = node.status?.internal?.epoch;
  return epoch === undefined ? {} : { epoch };
}

/** Returns the actions of planned work on a node. */
export function plannedActions(node: Node): Action[] {
  const { name } = node.metadata;
  if (node.spec?.maintenance === true) return [disableMaintenance(name)];
  const cordoned = node.spec?.unschedulable === true;
  return [enableMaintenance(name), cordoned ? uncordon(name) : cordon(name)];
}
