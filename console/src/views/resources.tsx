// The list of resources: filter, saved filters, and actions on several resources at the same time.
import { useState } from 'preact/hooks';
import { ActionButton } from '../actions/run';
import { clearError, start, stop } from '../actions/services';
import { conditionOf, type Resource } from '../api/objects';
import { distinctValues, matches } from '../derive/filter';
import { typeOf } from '../derive/names';
import { serviceTone } from '../derive/tones';
import { Ago, Empty, Loading, ObjectLink, PageTitle, State } from '../parts/basics';
import { NewButton } from '../parts/editor';
import { MoveButton } from '../parts/move';
import { NewObject } from '../parts/new-object';
import { SavedFilters } from '../parts/saved-filters';
import { Table } from '../parts/table';
import { WordFilter } from '../parts/word-filter';
import { setParameters, type Route } from '../router';
import { useObjects } from '../state/cluster';

export function ResourcesView({ route }: { route: Route }) {
  const resources = useObjects('resources');
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [creating, setCreating] = useState(false);
  if (resources === undefined) return <Loading />;
  const parameter = (name: string) => route.parameters.get(name) ?? '';
  const filter = { text: parameter('filter'), state: parameter('state'), node: parameter('node') };
  const shown = resources.filter((resource) => matches(resource, filter));
  const chosen = resources.filter((resource) => selected.has(resource.metadata.name));
  return (
    <>
      <PageTitle title="Resources">
        <NewButton label="New resource" plural="resources" open={() => setCreating(true)} />
      </PageTitle>
      <div class="filters" role="search">
        <WordFilter route={route} placeholder="Filter by name, state, node, group or label" />
        <Choice label="State" value={filter.state} values={distinctValues(resources, (resource) => resource.status?.state)} change={(state) => setParameters(route, { state })} />
        <Choice label="Node" value={filter.node} values={distinctValues(resources, (resource) => resource.status?.node)} change={(node) => setParameters(route, { node })} />
        <SavedFilters route={route} />
      </div>
      <BulkBar chosen={chosen} clear={() => setSelected(new Set())} />
      {shown.length === 0 ? (
        <Empty>{resources.length === 0 ? 'No resources yet.' : 'No resource matches the filter.'}</Empty>
      ) : (
        <ResourceTable resources={shown} selected={selected} change={setSelected} />
      )}
      {creating && <NewObject plural="resources" onClose={() => setCreating(false)} />}
    </>
  );
}

function Choice(props: { label: string; value: string; values: string[]; change: (value: string) => void }) {
  return (
    <label>
      <span class="hidden-text">{props.label}</span>
      <select value={props.value} onChange={(event) => props.change(event.currentTarget.value)}>
        <option value="">{props.label}: all</option>
        {props.values.map((value) => (
          <option key={value} value={value}>
            {value}
          </option>
        ))}
      </select>
    </label>
  );
}

function BulkBar({ chosen, clear }: { chosen: Resource[]; clear: () => void }) {
  if (chosen.length === 0) return null;
  const names = chosen.map((resource) => resource.metadata.name);
  const failed = chosen.filter((resource) => resource.status?.state === 'Error').map((resource) => resource.metadata.name);
  return (
    <div class="bulk" role="toolbar" aria-label="Actions on the selected resources">
      <strong>{chosen.length} selected</strong>
      <ActionButton actions={names.map(start)} />
      <ActionButton actions={names.map(stop)} />
      <MoveButton names={names} kind="Migrate" />
      <MoveButton names={names} kind="Relocate" />
      <ActionButton actions={failed.map(clearError)} />
      <button type="button" class="plain" onClick={clear}>
        Clear selection
      </button>
    </div>
  );
}

function ResourceTable(props: { resources: Resource[]; selected: Set<string>; change: (selected: Set<string>) => void }) {
  return (
    <Table
      label="Resources"
      rows={props.resources}
      keyOf={(resource) => resource.metadata.name}
      selection={{ selected: props.selected, change: props.change }}
      columns={[
        {
          title: 'Name',
          cell: (resource) => (
            <span>
              <span class="quiet">{typeOf(resource)}:</span>
              <ObjectLink kind="resource" name={resource.metadata.name} />
            </span>
          ),
        },
        { title: 'State', cell: (resource) => <State tone={serviceTone(resource)}>{resource.status?.state ?? 'Queued'}</State> },
        { title: 'Requested', cell: (resource) => resource.spec?.state ?? 'Started' },
        {
          title: 'Node',
          cell: (resource) =>
            resource.status?.node == null ? <span class="quiet">–</span> : <ObjectLink kind="node" name={resource.status.node} />,
        },
        { title: 'Message', cell: (resource) => <span class="message">{conditionOf(resource, 'Ready')?.message ?? ''}</span> },
        { title: 'Running since', cell: (resource) => <Ago time={resource.status?.runningSince} /> },
      ]}
    />
  );
}
