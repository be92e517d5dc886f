// The cluster: leader, controllers, etcd, checks, arming and active timing. The settings are in settings.tsx.
import { arm, disarm } from '../actions/cluster';
import { ActionButton } from '../actions/run';
import { bytesText } from '../derive/quantity';
import { secondsText } from '../derive/time';
import { Ago, Card, Empty, Loading, PageTitle, State } from '../parts/basics';
import { Table } from '../parts/table';
import { overview, useObjects, usePolled } from '../state/cluster';
import { Settings } from './settings';

export function ClusterView() {
  const { value } = usePolled(overview);
  const clusters = useObjects('clusters');
  const nodes = useObjects('nodes');
  if (value === undefined || clusters === undefined) return <Loading />;
  const [cluster] = clusters;
  return (
    <>
      <PageTitle title={`Cluster ${value.cluster}`}>
        <State tone={value.arming === 'Armed' ? 'ok' : 'warn'}>{value.arming || 'Unknown'}</State>
      </PageTitle>
      <div class="toolbar">
        {cluster?.spec?.disarmed == null ? (
          <>
            <ActionButton actions={[disarm('Freeze')]} />
            <ActionButton actions={[disarm('Ignore')]} />
          </>
        ) : (
          <ActionButton actions={[arm()]} primary />
        )}
      </div>
      <Card title="Controllers" wide>
        <Table
          label="Controllers"
          rows={value.controllers}
          keyOf={(controller) => controller.id}
          columns={[
            { title: 'Id', cell: (controller) => controller.id },
            {
              title: 'State',
              cell: (controller) => (
                <State tone={controller.state === 'Lost' ? 'bad' : controller.state === 'Leading' ? 'ok' : 'idle'}>
                  {controller.state === 'Leading' ? 'Leader' : controller.state}
                </State>
              ),
            },
            { title: 'Address', cell: (controller) => controller.url },
            { title: 'Version', cell: (controller) => controller.version },
            { title: 'Last refresh', numeric: true, cell: (controller) => `${secondsText(controller.silentSeconds)} ago` },
            { title: 'Leader since', cell: (controller) => (controller.id === value.leader?.id ? <Ago time={value.leader.since} /> : '') },
          ]}
        />
        <p class="quiet">This page reads from {value.answeredBy}.</p>
      </Card>
      <Card title="etcd" wide aside={<State tone={value.store.quorum ? 'ok' : 'bad'}>{value.store.quorum ? 'Quorum' : 'No quorum'}</State>}>
        <Table
          label="etcd members"
          rows={value.store.members}
          keyOf={(member) => member.url}
          columns={[
            { title: 'Member', cell: (member) => member.name },
            { title: 'Health', cell: (member) => <State tone={member.healthy ? 'ok' : 'bad'}>{member.healthy ? 'Healthy' : 'Unhealthy'}</State> },
            { title: 'Role', cell: (member) => (member.leader ? 'Leader of etcd' : 'Follower') },
            { title: 'Version', cell: (member) => member.version },
            { title: 'Database', numeric: true, cell: (member) => bytesText(member.databaseBytes) },
            { title: 'Problem', cell: (member) => member.problem ?? '' },
          ]}
        />
      </Card>
      <Card title="Active timing" wide>
        <p class="quiet">
          The fencing delay is the longest time from the last heartbeat of a node until its services may start elsewhere. The
          node computes it from the active settings and from its watchdog.
        </p>
        {(nodes ?? []).length === 0 ? (
          <Empty>No nodes.</Empty>
        ) : (
          <Table
            label="Timing of each node"
            rows={nodes ?? []}
            keyOf={(node) => node.metadata.name}
            columns={[
              { title: 'Node', cell: (node) => node.metadata.name },
              { title: 'Fencing delay', numeric: true, cell: (node) => <strong>{secondsText(node.status?.fencingDelaySeconds)}</strong> },
              { title: 'Heartbeat interval', numeric: true, cell: (node) => secondsText(node.status?.timing?.heartbeatIntervalSeconds) },
              { title: 'Heartbeat lifetime', numeric: true, cell: (node) => secondsText(node.status?.timing?.heartbeatLifetimeSeconds) },
              { title: 'Self-fence margin', numeric: true, cell: (node) => secondsText(node.status?.timing?.selfFenceMarginSeconds) },
              { title: 'Watchdog timeout', numeric: true, cell: (node) => secondsText(node.status?.timing?.watchdogTimeoutSeconds) },
            ]}
          />
        )}
      </Card>
      <Card title="Checks" wide>
        <Table
          label="Cluster checks"
          rows={value.checks}
          keyOf={(check) => check.name}
          columns={[
            {
              title: 'Check',
              cell: (check) => (
                <State tone={check.status === 'Pass' ? 'ok' : check.status === 'Warn' ? 'warn' : 'bad'}>{check.name}</State>
              ),
            },
            { title: 'Finding', cell: (check) => check.message },
            { title: 'Suggested action', cell: (check) => (check.status === 'Pass' ? '' : (check.remediation ?? '')) },
          ]}
        />
      </Card>
      <h2>Settings</h2>
      {cluster === undefined ? <Empty>The cluster has no settings object, so defaults apply.</Empty> : <Settings cluster={cluster} />}
    </>
  );
}
