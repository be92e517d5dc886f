// The overview: one sentence, then the problems, then capacity, events and the control plane.
import { actionOf, commandsIn } from '../actions/suggested';
import { ActionButton } from '../actions/run';
import type { Node, Overview, Problem, Resource, UsageOverview } from '../api/objects';
import { headline } from '../derive/headline';
import { bytesText, coresText, parseQuantity } from '../derive/quantity';
import { secondsText } from '../derive/time';
import { nodeTone } from '../derive/tones';
import { Ago, Bar, Card, CommandLine, Empty, Facts, Loading, ObjectLink, State } from '../parts/basics';
import { Icon } from '../parts/icon';
import { Timeline } from '../parts/timeline';
import { objectAddress } from '../router';
import { overview, reservation, usage, useObjects, usePolled } from '../state/cluster';

export function OverviewView() {
  const { value } = usePolled(overview);
  const report = usePolled(reservation).value;
  const amounts = usePolled(usage).value;
  const resources = useObjects('resources');
  const nodes = useObjects('nodes');
  const events = useObjects('events');
  if (value === undefined || resources === undefined) return <Loading />;
  const { tone, sentences } = headline(value, resources, report);
  return (
    <>
      <div class={`headline ${tone}`}>
        <span class="headline-mark">
          <Icon name={tone} label={tone === 'ok' ? 'Healthy' : tone === 'warn' ? 'Degraded' : 'Failed'} />
        </span>
        <h1 tabIndex={-1} aria-live="polite">
          {sentences.map((sentence) => (
            <span key={sentence.text} class={sentence.tone}>
              {sentence.text}{' '}
            </span>
          ))}
        </h1>
      </div>
      <AttentionCard problems={value.problems} waiting={value.waitingFor} nodes={nodes ?? []} />
      <div class="grid">
        <ServicesCard resources={resources} counts={value.services} />
        <NodesCard overview={value} />
        <CapacityCard usage={amounts} />
        <ControlPlaneCard overview={value} />
        <Card title="Recent events" broad aside={<a href="#/events">All events</a>}>
          <Timeline events={events ?? []} limit={8} empty="No events in the last hour." />
        </Card>
      </div>
    </>
  );
}

function AttentionCard({ problems, waiting, nodes }: { problems: Problem[]; waiting: string[]; nodes: Node[] }) {
  if (problems.length === 0 && waiting.length === 0) return null;
  return (
    <section class="card wide attention" aria-label="Needs attention">
      <header>
        <h2>Needs attention</h2>
      </header>
      <ul>
        {problems.map((problem) => (
          <ProblemLine key={`${problem.about} ${problem.reason} ${problem.message}`} problem={problem} nodes={nodes} />
        ))}
        {waiting.map((sentence) => (
          <li key={sentence}>
            <State tone="warn">Waiting</State>
            <p>{sentence}</p>
          </li>
        ))}
      </ul>
    </section>
  );
}

function ProblemLine({ problem, nodes }: { problem: Problem; nodes: Node[] }) {
  const [kind = '', name = ''] = problem.about.split('/');
  const commands = commandsIn(problem.help ?? '');
  const actions = commands
    .map((command) => actionOf(command, nodes))
    .filter((action): action is NonNullable<typeof action> => action !== undefined);
  const target = objectAddress(kind, name);
  return (
    <li>
      <State tone={problem.severity === 'Failed' ? 'bad' : 'warn'}>{problem.severity}</State>
      <div>
        <p>
          <strong>{problem.message}</strong>
        </p>
        {problem.help !== undefined && problem.help !== '' && <p class="quiet">{problem.help}</p>}
      </div>
      <div class="buttons">
        {actions.map((action) => (
          <ActionButton key={action.command} actions={[action]} primary />
        ))}
        {target !== undefined && (
          <a class="button" href={target}>
            Open {name}
          </a>
        )}
        {actions.length === 0 && commands[0] !== undefined && <CommandLine command={commands[0]} />}
      </div>
    </li>
  );
}

function ServicesCard({ resources, counts }: { resources: Resource[]; counts: Record<string, number> }) {
  const states = Object.entries(counts).sort(([, a], [, b]) => b - a);
  return (
    <Card title="Services" aside={<a href="#/resources">{resources.length} in total</a>}>
      {states.length === 0 ? (
        <Empty>No services. Create one in Resources, or with hactl apply.</Empty>
      ) : (
        <Facts facts={states.map(([state, number]) => [state, <span class="number big">{number}</span>])} />
      )}
    </Card>
  );
}

function NodesCard({ overview: { nodes } }: { overview: Overview }) {
  return (
    <Card title="Nodes" aside={<a href="#/nodes">{nodes.length} in total</a>}>
      <ul class="rows">
        {nodes.slice(0, 12).map((node) => (
          <li key={node.name}>
            <State tone={nodeTone(node.state)}>{node.state}</State>
            <ObjectLink kind="node" name={node.name} />
            <span class="quiet number">
              {node.services} {node.services === 1 ? 'service' : 'services'}
            </span>
            <span class="quiet number heartbeat">heartbeat {secondsText(node.silentSeconds)} ago</span>
          </li>
        ))}
      </ul>
      {nodes.length > 12 && <p class="quiet">{nodes.length - 12} more nodes</p>}
    </Card>
  );
}

/** Adds the amounts of all nodes. */
function total(nodes: UsageOverview['nodes'], read: (node: UsageOverview['nodes'][number]) => number | undefined): number {
  return nodes.reduce((sum, node) => sum + (read(node) ?? 0), 0);
}

function CapacityCard({ usage: amounts }: { usage: UsageOverview | undefined }) {
  if (amounts === undefined) return null;
  const { nodes } = amounts;
  const cpu = total(nodes, (node) => parseQuantity(node.capacity.cpu));
  const memory = total(nodes, (node) => parseQuantity(node.capacity.memory));
  const bars = [
    { label: 'Cores requested', used: total(nodes, (node) => parseQuantity(node.allocated.cpu)), of: cpu, show: coresText },
    { label: 'Cores in use', used: total(nodes, (node) => parseQuantity(node.usage?.cpu)), of: cpu, show: coresText },
    { label: 'Memory requested', used: total(nodes, (node) => parseQuantity(node.allocated.memory)), of: memory, show: bytesText },
    { label: 'Memory in use', used: total(nodes, (node) => parseQuantity(node.usage?.memory)), of: memory, show: bytesText },
  ];
  return (
    <Card title="Capacity" aside={<a href="#/capacity">Failover capacity</a>}>
      {bars.map((bar) => (
        <Bar key={bar.label} label={bar.label} used={bar.used} total={bar.of} text={`${bar.show(bar.used)} of ${bar.show(bar.of)}`} />
      ))}
    </Card>
  );
}

function ControlPlaneCard({ overview: value }: { overview: Overview }) {
  const healthy = value.store.members.filter((member) => member.healthy).length;
  return (
    <Card title="Control plane" aside={<a href="#/cluster">Details</a>}>
      <Facts
        facts={[
          [
            'Leader',
            value.leader == null ? (
              <State tone="bad">None</State>
            ) : (
              <>
                <State tone="ok">{value.leader.id}</State> <Ago time={value.leader.since} />
              </>
            ),
          ],
          [
            'Controllers',
            <span class="list">
              {value.controllers.map((controller) => (
                <State key={controller.id} tone={controller.state === 'Lost' ? 'bad' : 'ok'}>
                  {controller.id}
                  {controller.state === 'Lost' ? ' (lost)' : ''}
                </State>
              ))}
            </span>,
          ],
          [
            'etcd',
            <State tone={!value.store.quorum ? 'bad' : healthy < value.store.members.length ? 'warn' : 'ok'}>
              {healthy} of {value.store.members.length} members healthy
            </State>,
          ],
          ['Cluster', <State tone={value.arming === 'Armed' ? 'ok' : 'warn'}>{value.arming || 'Unknown'}</State>],
        ]}
      />
    </Card>
  );
}
