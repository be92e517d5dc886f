// The operations of the last day.
import { cancelOperation } from '../actions/cluster';
import { ActionButton } from '../actions/run';
import type { Operation } from '../api/objects';
import { containsWords } from '../derive/filter';
import { phaseTone } from '../derive/tones';
import { Ago, Empty, Loading, ObjectLink, PageTitle, State } from '../parts/basics';
import { Table } from '../parts/table';
import { WordFilter } from '../parts/word-filter';
import type { Route } from '../router';
import { useObjects } from '../state/cluster';

function matches(operation: Operation, filter: string): boolean {
  const { action, resource, node, requestedBy } = operation.spec;
  return containsWords([operation.metadata.name, action, resource, node, requestedBy, operation.status?.phase], filter);
}

export function OperationsView({ route }: { route: Route }) {
  const operations = useObjects('operations');
  if (operations === undefined) return <Loading />;
  const filter = route.parameters.get('filter') ?? '';
  const shown = operations
    .filter((operation) => matches(operation, filter))
    .sort((a, b) => (a.metadata.creationTimestamp < b.metadata.creationTimestamp ? 1 : -1));
  return (
    <>
      <PageTitle title="Operations" />
      <div class="filters" role="search">
        <WordFilter route={route} placeholder="Filter by action, object, user or phase" />
      </div>
      {shown.length === 0 ? (
        <Empty>{operations.length === 0 ? 'No operations in the last day.' : 'No operation matches the filter.'}</Empty>
      ) : (
        <Table
          label="Operations"
          rows={shown}
          keyOf={(operation) => operation.metadata.name}
          columns={[
            { title: 'Requested', cell: (operation) => <Ago time={operation.metadata.creationTimestamp} /> },
            { title: 'Phase', cell: (operation) => <State tone={phaseTone(operation.status?.phase)}>{operation.status?.phase ?? 'Pending'}</State> },
            { title: 'Action', cell: (operation) => operation.spec.action },
            { title: 'Resource', cell: (operation) => (operation.spec.resource == null ? '' : <ObjectLink kind="resource" name={operation.spec.resource} />) },
            { title: 'Node', cell: (operation) => (operation.spec.node == null ? '' : <ObjectLink kind="node" name={operation.spec.node} />) },
            { title: 'User', cell: (operation) => operation.spec.requestedBy ?? '' },
            { title: 'Message', cell: (operation) => <span class="message">{operation.status?.message ?? ''}</span> },
            { title: 'Change', cell: (operation) => <ActionButton actions={[cancelOperation(operation.metadata.name)]} /> },
          ]}
        />
      )}
    </>
  );
}
