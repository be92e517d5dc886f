// The definition of an action: its permission, equivalent hactl command, warning and request.
import { client, type Answer } from '../api/client';
import { objectPath, type Operation, type PluralName } from '../api/objects';
import type { Permission } from '../state/session';

export interface Action {
  /** Short text of the button. */
  label: string;
  /** Sentence without a full stop, as the title of the confirmation. */
  title: string;
  /** Equivalent command. */
  command: string;
  permission: Permission;
  /** Consequence that the user must confirm explicitly; hactl asks for confirmation here, too. */
  warning?: string;
  /** Sends the request; a dry run changes nothing and answers with the effects as warnings. */
  send: (dryRun: boolean) => Promise<Answer<unknown>>;
  /** Reads the effects if a dry run of the request does not report them. */
  readEffects?: () => Promise<string[]>;
}

export type OperationSpec = Operation['spec'];

function dryRunQuery(dryRun: boolean): string {
  return dryRun ? '?dryRun=All' : '';
}

/** Returns an Operation that the API has not recorded yet. */
export function newOperation(spec: OperationSpec) {
  return {
    apiVersion: 'hactl.io/v1',
    kind: 'Operation',
    metadata: { generateName: `${spec.action.toLowerCase()}-` },
    spec,
  };
}

/** Returns the part of an action that records an Operation. */
export function operationAction(spec: OperationSpec): Pick<Action, 'permission' | 'send'> {
  const body = newOperation(spec);
  return {
    permission: { verb: 'create', resource: `operations/${spec.action}` },
    send: (dryRun) => client.write('POST', `/apis/hactl.io/v1/operations${dryRunQuery(dryRun)}`, body),
  };
}

/** Returns the part of an action that changes fields of an object. */
export function patchAction(plural: PluralName, name: string, fields: unknown, subresource = ''): Pick<Action, 'permission' | 'send'> {
  return {
    permission: { verb: 'patch', resource: `${plural}${subresource}` },
    send: (dryRun) =>
      client.write('PATCH', objectPath(plural, name) + dryRunQuery(dryRun), fields, 'application/merge-patch+json'),
  };
}

/** Returns the part of an action that deletes an object. */
export function deleteAction(plural: PluralName, name: string): Pick<Action, 'permission' | 'send'> {
  return {
    permission: { verb: 'delete', resource: plural },
    send: (dryRun) => client.request(objectPath(plural, name) + dryRunQuery(dryRun), { method: 'DELETE' }),
  };
}
