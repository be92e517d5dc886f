// One resource: the reason for its node, its conditions, operations, events, log and definition.
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ActionButton } from '../actions/run';
import { removeResource, simpleActions } from '../actions/services';
import { client } from '../api/client';
import { readExplanation } from '../api/explanation';
import { objectPath, type Explanation, type Resource } from '../api/objects';
import { typeOf } from '../derive/names';
import { durationText } from '../derive/time';
import { isAbout } from '../derive/timeline';
import { phaseTone, serviceTone } from '../derive/tones';
import { Ago, Card, CommandLine, Empty, Facts, Loading, ObjectLink, PageTitle, State } from '../parts/basics';
import { Conditions } from '../parts/conditions';
import { Editor } from '../parts/editor';
import { ObjectForm } from '../parts/form';
import { MoveButton } from '../parts/move';
import { Table } from '../parts/table';
import { Timeline } from '../parts/timeline';
import { useObjects } from '../state/cluster';

export function ResourceView({ name }: { name: string }) {
  const resources = useObjects('resources');
  const events = useObjects('events');
  const [isEditing, setEditing] = useState(false);
  if (resources === undefined) return <Loading />;
  const resource = resources.find((item) => item.metadata.name === name);
  if (resource === undefined) {
    return (
      <>
        <PageTitle title={name} />
        <Empty>No resource has this name.</Empty>
      </>
    );
  }
  return (
    <>
      <PageTitle
        title={
          <>
            <span class="quiet">{typeOf(resource)}:</span>
            {name}
          </>
        }
      >
        <State tone={serviceTone(resource)}>{resource.status?.state ?? 'Queued'}</State>
      </PageTitle>
      <div class="toolbar">
        {simpleActions(resource).map((action) => (
          <ActionButton key={action.command} actions={[action]} />
        ))}
        <MoveButton names={[name]} kind="Migrate" />
        <MoveButton names={[name]} kind="Relocate" />
        <ActionButton actions={[removeResource(name)]} />
      </div>
      <div class="grid">
        <Summary resource={resource} />
        <Why resource={resource} />
        <Card title="Conditions" wide>
          <Conditions conditions={resource.status?.conditions ?? []} />
        </Card>
        <Card title="Events" broad aside={<a href={`#/events?filter=${encodeURIComponent(name)}`}>All events</a>}>
          <Timeline
            events={(events ?? []).filter((event) => isAbout(event, 'Resource', name))}
            limit={20}
            empty="No events in the last hour."
          />
        </Card>
        <Operations name={name} />
        <Log name={name} />
        <Card title="Settings" wide>
          <details onToggle={(event) => setEditing(event.currentTarget.open)}>
            <summary>Change settings in a form</summary>
            {isEditing && <Settings key={resource.metadata.uid} resource={resource} />}
          </details>
        </Card>
        <Card title="Definition" wide>
          <Editor plural="resources" object={resource} />
        </Card>
      </div>
    </>
  );
}

/** The fields of a resource, except those of its driver and its requested state, which has buttons. */
function Settings({ resource }: { resource: Resource }) {
  const groups = useObjects('groups') ?? [];
  const others = useObjects('resources') ?? [];
  return (
    <ObjectForm
      plural="resources"
      object={resource}
      includes={(path) => path !== 'state' && !path.startsWith('driver.')}
      suggestions={{
        group: groups.map((group) => group.metadata.name),
        dependsOn: others.map((other) => other.metadata.name).filter((name) => name !== resource.metadata.name),
      }}
    />
  );
}

function Summary({ resource }: { resource: Resource }) {
  const { spec, status } = resource;
  const availability = status?.availability;
  const requests = Object.entries(spec?.requests ?? {}).filter(([, value]) => value !== null && value !== undefined);
  return (
    <Card title="Summary">
      <Facts
        facts={[
          ['Requested state', spec?.state ?? 'Started'],
          ['Node', status?.node == null ? '–' : <ObjectLink kind="node" name={status.node} />],
          ...(status?.target == null
            ? []
            : ([['Target', <ObjectLink kind="node" name={status.target} />]] as [string, ComponentChildren][])),
          ['Running since', <Ago time={status?.runningSince} />],
          ['Group', spec?.group == null || spec.group === '' ? '–' : <ObjectLink kind="group" name={spec.group} />],
          ['Requests', requests.length === 0 ? '–' : requests.map(([key, value]) => `${key} ${value}`).join(', ')],
          ['Depends on', (spec?.dependsOn ?? []).join(', ') || '–'],
          ['Comment', spec?.comment ?? '–'],
          ...(availability == null
            ? []
            : ([
                ['Availability recorded', <Ago time={availability.recordedSince} />],
                ['Down since then', durationText(downSeconds(availability.spans ?? []))],
              ] as [string, ComponentChildren][])),
        ]}
      />
    </Card>
  );
}

function downSeconds(spans: { downSeconds?: number }[]): number {
  return spans.reduce((sum, span) => sum + (span.downSeconds ?? 0), 0);
}

function Why({ resource }: { resource: Resource }) {
  const { name, resourceVersion } = resource.metadata;
  const [explanation, setExplanation] = useState<Explanation | undefined>(undefined);
  const nodes = useObjects('nodes');
  const nodeVersions = nodes?.map((node) => `${node.status?.state}${node.spec?.maintenance}`).join();
  useEffect(() => {
    let current = true;
    readExplanation(name).then(
      (answer) => {
        if (current) setExplanation(answer);
      },
      () => undefined,
    );
    return () => {
      current = false;
    };
  }, [name, resourceVersion, nodeVersions]);
  if (explanation === undefined) return null;
  return (
    <Card title="Why" broad aside={<CommandLine command={`hactl why ${name}`} />}>
      <p class="lead">{explanation.message}</p>
      {explanation.waitingFor.length > 0 && (
        <ul>
          {explanation.waitingFor.map((sentence) => (
            <li key={sentence}>Waiting for: {sentence}</li>
          ))}
        </ul>
      )}
      {explanation.help.map((sentence) => (
        <p key={sentence}>
          <strong>Suggested:</strong> {sentence}
        </p>
      ))}
      <Table
        label="Eligibility of each node"
        rows={explanation.nodes}
        keyOf={(verdict) => verdict.node}
        columns={[
          { title: 'Node', cell: (verdict) => <ObjectLink kind="node" name={verdict.node} /> },
          {
            title: 'Verdict',
            cell: (verdict) => (
              <State tone={verdict.current ? 'ok' : verdict.allowed ? 'idle' : 'bad'}>
                {verdict.current ? 'Assigned' : verdict.allowed ? 'Eligible' : 'Refused'}
              </State>
            ),
          },
          { title: 'Score', cell: (verdict) => verdict.score ?? '' },
          {
            title: 'Causes',
            cell: (verdict) => verdict.causes.map((cause) => <div key={cause.reason + cause.message}>{cause.message}</div>),
          },
        ]}
      />
    </Card>
  );
}

function Operations({ name }: { name: string }) {
  const operations = useObjects('operations');
  const ofResource = (operations ?? [])
    .filter((operation) => operation.spec.resource === name)
    .sort((a, b) => (a.metadata.creationTimestamp < b.metadata.creationTimestamp ? 1 : -1));
  return (
    <Card title="Operations">
      {ofResource.length === 0 ? (
        <Empty>No operations in the last day.</Empty>
      ) : (
        <ul class="rows">
          {ofResource.slice(0, 10).map((operation) => (
            <li key={operation.metadata.uid}>
              <State tone={phaseTone(operation.status?.phase)}>{operation.status?.phase ?? 'Pending'}</State>
              <span>
                {operation.spec.action} {operation.spec.node ?? ''}
              </span>
              <span class="quiet">
                {operation.spec.requestedBy} · <Ago time={operation.metadata.creationTimestamp} />
              </span>
              {operation.status?.message !== undefined && <span class="quiet full">{operation.status.message}</span>}
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Log({ name }: { name: string }) {
  const [text, setText] = useState<string | undefined>(undefined);
  const [error, setError] = useState('');
  const read = () => {
    setError('');
    client.text(`${objectPath('resources', name)}/log?tailLines=200`).then(setText, (failure: unknown) => {
      setError(failure instanceof Error ? failure.message : String(failure));
    });
  };
  return (
    <Card
      title="Log"
      wide
      aside={
        <button type="button" onClick={read}>
          {text === undefined ? 'Read the last 200 lines' : 'Read again'}
        </button>
      }
    >
      {error !== '' && <p class="state bad">{error}</p>}
      {text === undefined ? (
        <CommandLine command={`hactl logs ${name} --tail 200`} />
      ) : (
        <pre class="log" tabIndex={0}>
          {text === '' ? 'The log is empty.' : text}
        </pre>
      )}
    </Card>
  );
}
