// The list of nodes: state, heartbeat, watchdog, services and capacity.
import type { NodeOverview } from '../api/objects';
import { bytesText, coresText, parseQuantity } from '../derive/quantity';
import { secondsText } from '../derive/time';
import { nodeTone } from '../derive/tones';
import { Empty, Loading, ObjectLink, PageTitle, State } from '../parts/basics';
import { Table } from '../parts/table';
import { overview, usage, usePolled } from '../state/cluster';

export function Watchdog({ node }: { node: NodeOverview | undefined }) {
  const watchdog = node?.watchdog;
  if (watchdog == null || watchdog.kind === 'None') return <State tone="bad">None</State>;
  if (watchdog.failed === true) return <State tone="bad">Failed</State>;
  return <State tone={watchdog.armed ? 'ok' : 'idle'}>{watchdog.armed ? 'Armed' : 'Not armed'}</State>;
}

export function NodesView() {
  const { value } = usePolled(overview);
  const amounts = usePolled(usage).value;
  if (value === undefined) return <Loading />;
  const amountOf = (name: string) => amounts?.nodes.find((node) => node.name === name);
  return (
    <>
      <PageTitle title="Nodes" />
      {value.nodes.length === 0 ? (
        <Empty>No nodes. Start ha-node-agent on a machine.</Empty>
      ) : (
        <Table
          label="Nodes"
          rows={value.nodes}
          keyOf={(node) => node.name}
          columns={[
            { title: 'Name', cell: (node) => <ObjectLink kind="node" name={node.name} /> },
            { title: 'State', cell: (node) => <State tone={nodeTone(node.state)}>{node.state}</State> },
            { title: 'Heartbeat', numeric: true, cell: (node) => `${secondsText(node.silentSeconds)} ago` },
            { title: 'Watchdog', cell: (node) => <Watchdog node={node} /> },
            { title: 'Timeout', numeric: true, cell: (node) => secondsText(node.watchdog?.timeoutSeconds) },
            { title: 'Services', numeric: true, cell: (node) => node.services },
            { title: 'Cores', numeric: true, cell: (node) => amountCell(amountOf(node.name)?.allocated.cpu, amountOf(node.name)?.capacity.cpu, coresText) },
            { title: 'Memory', numeric: true, cell: (node) => amountCell(amountOf(node.name)?.allocated.memory, amountOf(node.name)?.capacity.memory, bytesText) },
            { title: 'Message', cell: (node) => <span class="message">{node.message ?? ''}</span> },
          ]}
        />
      )}
    </>
  );
}

type Amount = string | number | null | undefined;

function amountCell(used: Amount, of: Amount, show: (value: number) => string): string {
  const total = parseQuantity(of);
  return total === undefined ? '–' : `${show(parseQuantity(used) ?? 0)} of ${show(total)}`;
}
