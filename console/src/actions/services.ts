// Actions on services: each is recorded as an Operation, as hactl does.
import { readExplanation } from '../api/explanation';
import type { Resource } from '../api/objects';
import { operationAction, deleteAction, type Action } from './action';

export function start(name: string): Action {
  return {
    label: 'Start',
    title: `Start ${name}`,
    command: `hactl start ${name}`,
    ...operationAction({ action: 'Start', resource: name }),
  };
}

export function stop(name: string): Action {
  return {
    label: 'Stop',
    title: `Stop ${name}`,
    command: `hactl stop ${name}`,
    ...operationAction({ action: 'Stop', resource: name }),
  };
}

export function restart(name: string): Action {
  return {
    label: 'Restart',
    title: `Restart ${name}`,
    command: `hactl restart ${name}`,
    ...operationAction({ action: 'Restart', resource: name }),
  };
}

export function clearError(name: string): Action {
  return {
    label: 'Clear error',
    title: `Clear the error of ${name}`,
    command: `hactl clear-error ${name}`,
    ...operationAction({ action: 'ClearError', resource: name }),
  };
}

export function migrate(name: string, node: string): Action {
  return {
    label: 'Migrate',
    title: `Migrate ${name} to ${node}`,
    command: `hactl migrate ${name} ${node}`,
    ...operationAction({ action: 'Migrate', resource: name, node }),
    readEffects: () => targetVerdict(name, node),
  };
}

export function relocate(name: string, node: string): Action {
  return {
    label: 'Relocate',
    title: `Relocate ${name} to ${node}: stop, move, start`,
    command: `hactl relocate ${name} ${node}`,
    ...operationAction({ action: 'Relocate', resource: name, node }),
    readEffects: () => targetVerdict(name, node),
  };
}

/** Returns the server's verdict about the target of a move. */
async function targetVerdict(name: string, node: string): Promise<string[]> {
  const explanation = await readExplanation(name);
  const verdict = explanation.nodes.find((candidate) => candidate.node === node);
  const causes = (verdict?.causes ?? []).map((cause) => `${node}: ${cause.message}`);
  const from = explanation.node == null ? 'no node' : explanation.node;
  const eligible = verdict?.allowed === true ? 'eligible' : 'not eligible';
  return [`${name} would move from ${from} to ${node}, which is ${eligible}`, ...causes];
}

export function removeResource(name: string): Action {
  return {
    label: 'Delete',
    title: `Delete resource ${name}`,
    command: `hactl delete resource ${name} --keep-rules`,
    warning: `hactl no longer monitors or recovers ${name}. A running service continues unchanged.`,
    ...deleteAction('resources', name),
  };
}

/** Returns the actions without a target that can apply to the requested state of a resource. */
export function simpleActions(resource: Resource): Action[] {
  const { name } = resource.metadata;
  const requested = resource.spec?.state ?? 'Started';
  const actions: Action[] = [];
  if (resource.status?.state === 'Error') actions.push(clearError(name));
  if (requested === 'Started') actions.push(restart(name), stop(name));
  else actions.push(start(name));
  return actions;
}
