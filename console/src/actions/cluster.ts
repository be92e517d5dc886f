// Actions on the whole cluster, and the cancellation of an operation.
import { operationAction, patchAction, deleteAction, type Action } from './action';

export function disarm(how: 'Freeze' | 'Ignore'): Action {
  return {
    label: `Disarm (${how})`,
    title: 'Suspend watchdogs and fencing',
    command: `hactl disarm ${how.toLowerCase()}`,
    warning: 'While the cluster is disarmed, no failed node is fenced and no service is recovered.',
    ...patchAction('clusters', 'default', { spec: { disarmed: how } }),
  };
}

export function arm(): Action {
  return {
    label: 'Arm',
    title: 'Resume watchdogs and fencing',
    command: 'hactl arm',
    ...patchAction('clusters', 'default', { spec: { disarmed: null } }),
  };
}

export function testNotifications(): Action {
  return {
    label: 'Test notifications',
    title: 'Send a test to every notification target',
    command: 'hactl notify test',
    ...operationAction({ action: 'TestNotifications' }),
  };
}

export function cancelOperation(name: string): Action {
  return {
    label: 'Delete',
    title: `Delete operation ${name}`,
    command: `hactl delete operation ${name}`,
    warning: 'An operation in progress is canceled where that is still possible.',
    ...deleteAction('operations', name),
  };
}
