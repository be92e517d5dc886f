// The placement view of many services: first the groups of nodes, then the nodes of a group, then the services of a node.
import type { ComponentChildren } from 'preact';
import { summarize, countUnhealthy, type Column, type Dimension, type GroupSummary } from '../derive/placement';
import { bytesText, coresText } from '../derive/quantity';
import { nodeTone } from '../derive/tones';
import { Bar, State } from '../parts/basics';
import { address, setParameters, type Route } from '../router';

interface AggregatedProps {
  shown: Column[];
  route: Route;
  dimension: Dimension;
  /** Whether there are too many services for blocks. */
  isAggregated: boolean;
  children: (columns: Column[]) => ComponentChildren;
}

/** Name of the nodes without a group in the address. */
const WITHOUT_GROUP = '-';

const nameOf = (group: string) => (group === '' ? 'Nodes without a group' : group);
const keyOf = (group: string) => (group === '' ? WITHOUT_GROUP : group);

export function Aggregated({ shown, route, dimension, isAggregated, children }: AggregatedProps) {
  const chosen = route.parameters.get('group');
  const node = route.parameters.get('node');
  if (!isAggregated) return <>{children(shown)}</>;
  const groups = summarize(shown);
  const group = groups.find((item) => keyOf(item.group) === chosen);
  const column = group?.columns.find((item) => item.node === node);
  return (
    <>
      <nav class="crumbs" aria-label="Level">
        <a href={address(['placement'], parameters(route, {}))}>All groups</a>
        {group !== undefined && <a href={address(['placement'], parameters(route, { group: keyOf(group.group) }))}>{nameOf(group.group)}</a>}
        {column !== undefined && <span>{column.node}</span>}
      </nav>
      {column !== undefined ? (
        children([column])
      ) : group !== undefined ? (
        <NodeTiles columns={group.columns} open={(name) => setParameters(route, { node: name })} />
      ) : (
        <ul class="tiles groups" aria-label="Groups of nodes">
          {groups.map((item) => (
            <li key={item.group}>
              <GroupTile summary={item} dimension={dimension} open={() => setParameters(route, { group: keyOf(item.group), node: '' })} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** Returns the parameters of the address with another level. */
function parameters(route: Route, level: Record<string, string>): Record<string, string> {
  return { size: route.parameters.get('size') ?? '', fail: route.parameters.get('fail') ?? '', ...level };
}

function GroupTile({ summary, dimension, open }: { summary: GroupSummary; dimension: Dimension; open: () => void }) {
  const { columns, services, unavailable, capacity, allocated } = summary;
  const show = dimension === 'cpu' ? coresText : bytesText;
  return (
    <button type="button" class="tile" onClick={open}>
      <strong>{nameOf(summary.group)}</strong>
      <span>
        {columns.length} {columns.length === 1 ? 'node' : 'nodes'}, {services} services
      </span>
      {dimension !== 'count' && capacity > 0 && (
        <Bar label="Requested" used={allocated} total={capacity} text={`${show(allocated)} of ${show(capacity)}`} />
      )}
      <Health unhealthy={summary.unhealthy} unavailable={unavailable} />
    </button>
  );
}

function Health({ unhealthy: services, unavailable }: { unhealthy: number; unavailable: number }) {
  return (
    <>
      {unavailable > 0 && <State tone="bad">{unavailable} not online</State>}
      {services > 0 && <State tone="warn">{services} services not as requested</State>}
      {unavailable === 0 && services === 0 && <State tone="ok">As requested</State>}
    </>
  );
}

function NodeTiles({ columns, open }: { columns: Column[]; open: (node: string) => void }) {
  return (
    <ul class="tiles" aria-label="Nodes">
      {columns.map((column) => {
        const services = countUnhealthy(column);
        return (
          <li key={column.node}>
            <button type="button" class="tile small" data-tile={column.node} onClick={() => open(column.node)}>
              <strong>{column.node}</strong>
              <State tone={column.failed ? 'bad' : nodeTone(column.state as 'Online')}>{column.failed ? 'Failed' : column.state}</State>
              <span class="number">{column.blocks.length} services</span>
              {services > 0 && <State tone="warn">{services} not as requested</State>}
            </button>
          </li>
        );
      })}
    </ul>
  );
}
