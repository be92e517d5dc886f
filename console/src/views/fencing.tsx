// Fencing: current blockers, the state of every node, and the history with its confirmations.
import { confirmFenced } from '../actions/nodes';
import { ActionButton } from '../actions/run';
import { secondsText } from '../derive/time';
import { nodeTone } from '../derive/tones';
import { Ago, Card, Empty, Loading, ObjectLink, PageTitle, State } from '../parts/basics';
import { Table } from '../parts/table';
import { Timeline } from '../parts/timeline';
import { overview, useObjects, usePolled } from '../state/cluster';
import { Watchdog } from './nodes';

export function FencingView() {
  const { value } = usePolled(overview);
  const nodes = useObjects('nodes');
  const events = useObjects('events');
  if (value === undefined || nodes === undefined) return <Loading />;
  const objectOf = (name: string) => nodes.find((node) => node.metadata.name === name);
  const history = [...value.recentFences].reverse();
  return (
    <>
      <PageTitle title="Fencing">
        <State tone={value.arming === 'Armed' ? 'ok' : 'warn'}>{value.arming || 'Unknown'}</State>
      </PageTitle>
      <Card title="Waiting for" wide>
        {value.waitingFor.length === 0 ? (
          <Empty>No fencing operation is in progress.</Empty>
        ) : (
          <ul>
            {value.waitingFor.map((sentence) => (
              <li key={sentence}>{sentence}</li>
            ))}
          </ul>
        )}
      </Card>
      <Card title="Nodes" wide>
        <Table
          label="Fencing state of each node"
          rows={value.nodes}
          keyOf={(node) => node.name}
          columns={[
            { title: 'Node', cell: (node) => <ObjectLink kind="node" name={node.name} /> },
            { title: 'State', cell: (node) => <State tone={nodeTone(node.state)}>{node.state}</State> },
            { title: 'Registration', cell: (node) => `${node.registrationState} (number ${node.registration})` },
            { title: 'Heartbeat', numeric: true, cell: (node) => `${secondsText(node.silentSeconds)} ago` },
            { title: 'Watchdog', cell: (node) => <Watchdog node={node} /> },
            { title: 'Fencing delay', numeric: true, cell: (node) => secondsText(objectOf(node.name)?.status?.fencingDelaySeconds) },
            {
              title: 'Confirm',
              cell: (node) => {
                const object = objectOf(node.name);
                const isReachable = node.state === 'Online' || node.state === 'Maintenance';
                return object === undefined || isReachable ? null : <ActionButton actions={[confirmFenced(object)]} />;
              },
            },
          ]}
        />
      </Card>
      <Card title="History" wide>
        {history.length === 0 ? (
          <Empty>No node has been fenced recently.</Empty>
        ) : (
          <Table
            label="Fencing operations"
            rows={history}
            keyOf={(fence) => `${fence.node} ${fence.epoch}`}
            columns={[
              { title: 'Node', cell: (fence) => <ObjectLink kind="node" name={fence.node} /> },
              { title: 'Time', cell: (fence) => <Ago time={fence.at} /> },
              { title: 'Reason', cell: (fence) => fence.reason },
              { title: 'Message', cell: (fence) => fence.message },
              { title: 'Confirmed by', cell: (fence) => fence.proof ?? '' },
            ]}
          />
        )}
      </Card>
      <Card title="Node events" wide>
        <Timeline
          events={(events ?? []).filter((event) => event.involvedObject.kind === 'Node')}
          limit={20}
          empty="No events in the last hour."
        />
      </Card>
    </>
  );
}
