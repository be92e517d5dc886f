// One node: heartbeat, watchdog and its margin, maintenance, fence devices, health checks, services and settings.
import { ActionButton } from '../actions/run';
import { confirmFenced, continueShutdown, fence, followStore, plannedActions, testWatchdog, unfence } from '../actions/nodes';
import type { Node, NodeOverview, Resource } from '../api/objects';
import { bytesText, coresText, parseQuantity } from '../derive/quantity';
import { secondsText } from '../derive/time';
import { isAbout } from '../derive/timeline';
import { nodeTone, serviceTone } from '../derive/tones';
import { Ago, Bar, Card, Empty, Facts, Loading, ObjectLink, PageTitle, State } from '../parts/basics';
import { Conditions } from '../parts/conditions';
import { Editor } from '../parts/editor';
import { Table } from '../parts/table';
import { Timeline } from '../parts/timeline';
import { overview, useObjects, usePolled } from '../state/cluster';
import { Watchdog } from './nodes';

export function NodeView({ name }: { name: string }) {
  const nodes = useObjects('nodes');
  const resources = useObjects('resources');
  const events = useObjects('events');
  const { value } = usePolled(overview);
  if (nodes === undefined || value === undefined) return <Loading />;
  const node = nodes.find((item) => item.metadata.name === name);
  const live = value.nodes.find((item) => item.name === name);
  if (node === undefined) {
    return (
      <>
        <PageTitle title={name} />
        <Empty>{live === undefined ? 'No node has this name.' : 'The node was deleted; its last state is kept.'}</Empty>
      </>
    );
  }
  const services = (resources ?? []).filter((resource) => resource.status?.node === name);
  const moving = (resources ?? []).filter((resource) => resource.status?.maintenanceNode === name);
  return (
    <>
      <PageTitle title={name}>
        <State tone={nodeTone(live?.state)}>{live?.state ?? 'Unknown'}</State>
      </PageTitle>
      <div class="toolbar">
        {plannedActions(node).map((action) => (
          <ActionButton key={action.command} actions={[action]} />
        ))}
        <ActionButton actions={[testWatchdog(node)]} />
        <ActionButton actions={[fence(name)]} />
      </div>
      <div class="grid">
        <Contact live={live} node={node} />
        <WatchdogCard live={live} node={node} />
        <Maintenance node={node} services={services} moved={moving.length} />
        <Amounts node={node} />
        <Recovery node={node} />
        <FenceDevices node={node} />
        <Card title="Services" wide>
          {services.length === 0 ? (
            <Empty>No services are assigned to this node.</Empty>
          ) : (
            <ul class="rows">
              {services.map((resource) => (
                <li key={resource.metadata.name}>
                  <State tone={serviceTone(resource)}>{resource.status?.state ?? 'Queued'}</State>
                  <ObjectLink kind="resource" name={resource.metadata.name} />
                </li>
              ))}
            </ul>
          )}
        </Card>
        <Checks node={node} />
        <Card title="Conditions" wide>
          <Conditions conditions={node.status?.conditions ?? []} />
        </Card>
        <Card title="Events" wide>
          <Timeline events={(events ?? []).filter((event) => isAbout(event, 'Node', name))} limit={20} empty="No events in the last hour." />
        </Card>
        <Card title="Definition" wide>
          <Editor plural="nodes" object={node} />
        </Card>
      </div>
    </>
  );
}

function Contact({ live, node }: { live: NodeOverview | undefined; node: Node }) {
  return (
    <Card title="Contact">
      {live?.message !== undefined && <p class="lead">{live.message}</p>}
      <Facts
        facts={[
          ['Last heartbeat', `${secondsText(live?.silentSeconds)} ago`],
          ['Lease', live?.lease === true ? 'Valid' : 'None'],
          ['Registration', `${live?.registrationState ?? 'unknown'} (number ${live?.registration ?? 0})`],
          ['Fencing delay', secondsText(node.status?.fencingDelaySeconds)],
          ['Agent', `${live?.agent ?? ''} ${live?.version ?? ''}`],
          ['Last seen', <Ago time={live?.lastHeartbeatTime} />],
        ]}
      />
    </Card>
  );
}

function WatchdogCard({ live, node }: { live: NodeOverview | undefined; node: Node }) {
  const watchdog = live?.watchdog;
  return (
    <Card title="Watchdog" aside={<Watchdog node={live} />}>
      <Facts
        facts={[
          ['Driver', watchdog?.identity ?? 'none'],
          ['Device', watchdog?.device ?? '–'],
          ['Timeout', secondsText(watchdog?.timeoutSeconds)],
          ['Smallest margin', secondsText(watchdog?.observed?.minMarginSeconds)],
          ['Largest delay', secondsText(watchdog?.observed?.maxDelaySeconds)],
          [
            'Last test',
            watchdog?.lastTest == null ? (
              'Never tested'
            ) : (
              <>
                reset after {secondsText(watchdog.lastTest.lastedSeconds)}, <Ago time={watchdog.lastTest.at} />
              </>
            ),
          ],
          ['Drivers of services', (node.status?.drivers ?? []).join(', ') || '–'],
        ]}
      />
    </Card>
  );
}

function Maintenance({ node, services, moved }: { node: Node; services: Resource[]; moved: number }) {
  const isOn = node.spec?.maintenance === true;
  return (
    <Card
      title="Maintenance"
      aside={<State tone={isOn ? 'warn' : 'idle'}>{isOn ? 'Enabled' : 'Off'}</State>}
    >
      {isOn ? (
        <>
          <Bar label="Moved away" used={moved} total={Math.max(1, moved + services.length)} text={`${moved} of ${moved + services.length} services`} />
          <p class="quiet">
            {services.length === 0
              ? 'The node is empty.'
              : `Waiting for ${services.map((resource) => resource.metadata.name).join(', ')}.`}
          </p>
        </>
      ) : (
        <p class="quiet">
          {node.spec?.unschedulable === true ? 'Cordoned: no new services are scheduled here.' : 'New services may be scheduled here.'}
        </p>
      )}
      {node.status?.mode !== undefined && node.status.mode.startsWith('Shut') && (
        <ActionButton actions={[continueShutdown(node)]} />
      )}
    </Card>
  );
}

function Amounts({ node }: { node: Node }) {
  const { capacity, allocated, usage } = node.status ?? {};
  const cpu = parseQuantity(capacity?.cpu) ?? 0;
  const memory = parseQuantity(capacity?.memory) ?? 0;
  const bar = (label: string, used: string | number | null | undefined, total: number, show: (value: number) => string) => (
    <Bar label={label} used={parseQuantity(used) ?? 0} total={total} text={`${show(parseQuantity(used) ?? 0)} of ${show(total)}`} />
  );
  return (
    <Card title="Capacity">
      {bar('Cores requested', allocated?.cpu, cpu, coresText)}
      {bar('Cores in use', usage?.cpu, cpu, coresText)}
      {bar('Memory requested', allocated?.memory, memory, bytesText)}
      {bar('Memory in use', usage?.memory, memory, bytesText)}
    </Card>
  );
}

/** Actions for a node that does not return automatically. Each can cause data loss if its confirmation is wrong. */
function Recovery({ node }: { node: Node }) {
  return (
    <Card title="Manual recovery">
      <p class="quiet">For a node that does not return automatically. Each action can cause data loss, and requires confirmation.</p>
      <div class="buttons left">
        <ActionButton actions={[confirmFenced(node)]} />
        <ActionButton actions={[unfence(node)]} />
        <ActionButton actions={[followStore(node.metadata.name)]} />
      </div>
    </Card>
  );
}

function FenceDevices({ node }: { node: Node }) {
  const devices = node.spec?.fencing?.devices ?? [];
  const health = node.status?.conditions?.filter((condition) => condition.type === 'FenceDevicesHealthy') ?? [];
  return (
    <Card title="Fence devices">
      {devices.length === 0 ? (
        <Empty>None. The watchdog alone fences this node.</Empty>
      ) : (
        <ul class="rows">
          {devices.map((device, index) => (
            <li key={index}>
              <strong>{device.name ?? `Device ${index + 1}`}</strong>
              <span class="quiet">
                {device.kind}, {device.action}, priority {device.priority ?? 0}:{' '}
                {(device.parts ?? []).map((part) => part.agent).join(', ')}
              </span>
            </li>
          ))}
        </ul>
      )}
      {health.length > 0 && <Conditions conditions={health} />}
    </Card>
  );
}

function Checks({ node }: { node: Node }) {
  const checks = node.status?.checks ?? [];
  if (checks.length === 0) return null;
  return (
    <Card title="Health checks" wide>
      <Table
        label="Health checks"
        rows={checks}
        keyOf={(check) => check.name ?? ''}
        columns={[
          {
            title: 'Check',
            cell: (check) => (
              <State tone={check.status === 'Pass' ? 'ok' : check.status === 'Warn' ? 'warn' : 'bad'}>{check.name}</State>
            ),
          },
          { title: 'Finding', cell: (check) => check.message ?? '' },
          { title: 'Suggested action', cell: (check) => (check.status === 'Pass' ? '' : (check.remediation ?? '')) },
        ]}
      />
    </Card>
  );
}
