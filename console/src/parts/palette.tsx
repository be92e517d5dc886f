// The palette: finds views, objects and actions by words.
import { useMemo, useState } from 'preact/hooks';
import type { Action } from '../actions/action';
import * as cluster from '../actions/cluster';
import { plannedActions } from '../actions/nodes';
import { requestConfirmation } from '../actions/run';
import { simpleActions } from '../actions/services';
import type { Node, Resource } from '../api/objects';
import { search } from '../derive/search';
import { useNavigationEntries, type NavigationEntry } from '../navigation-entries';
import { address, navigate } from '../router';
import { useObjects } from '../state/cluster';
import { refusal } from '../state/session';
import { Dialog } from './dialog';
import { Icon, type IconName } from './icon';

interface Item {
  title: string;
  detail: string;
  icon: IconName;
  refused?: string;
  run: () => void;
}

function actionItem(action: Action): Item {
  const refused = refusal(action.permission);
  return {
    title: action.title,
    detail: refused ?? action.command,
    icon: 'operations',
    ...(refused === undefined ? {} : { refused }),
    run: () => requestConfirmation([action]),
  };
}

function items(entries: NavigationEntry[], resources: Resource[], nodes: Node[]): Item[] {
  return [
    ...entries.map((entry) => ({
      title: entry.title,
      detail: 'View',
      icon: entry.icon,
      run: () => navigate(`#/${entry.path}`),
    })),
    ...resources.map((resource) => ({
      title: resource.metadata.name,
      detail: `Resource, ${resource.status?.state ?? 'not processed'}${resource.status?.node == null ? '' : ` on ${resource.status.node}`}`,
      icon: 'resources' as const,
      run: () => navigate(address(['resources', resource.metadata.name])),
    })),
    ...nodes.map((node) => ({
      title: node.metadata.name,
      detail: `Node, ${node.status?.state ?? 'not processed'}`,
      icon: 'nodes' as const,
      run: () => navigate(address(['nodes', node.metadata.name])),
    })),
    ...resources.flatMap(simpleActions).map(actionItem),
    ...nodes.flatMap(plannedActions).map(actionItem),
    ...[cluster.disarm('Freeze'), cluster.arm(), cluster.testNotifications()].map(actionItem),
  ];
}

export function Palette({ onClose }: { onClose: () => void }) {
  const resources = useObjects('resources');
  const nodes = useObjects('nodes');
  const entries = useNavigationEntries();
  const [query, setQuery] = useState('');
  const [selected, setSelected] = useState(0);
  const allItems = useMemo(() => items(entries, resources ?? [], nodes ?? []), [entries, resources, nodes]);
  const matches = search(allItems, query, 12);
  const choose = (item: Item | undefined) => {
    if (item === undefined || item.refused !== undefined) return;
    onClose();
    item.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step !== 0) {
      event.preventDefault();
      setSelected((selected + step + matches.length) % Math.max(1, matches.length));
    } else if (event.key === 'Enter') {
      event.preventDefault();
      choose(matches[selected]);
    }
  };
  return (
    <Dialog title="Search views and actions" onClose={onClose}>
      <div class="palette">
        <input
          type="text"
          role="combobox"
          aria-expanded="true"
          aria-controls="palette-results"
          aria-activedescendant={matches.length > 0 ? `palette-${selected}` : undefined}
          aria-label="Search views, objects and actions"
          placeholder="Search, such as: stop web"
          autofocus
          value={query}
          onInput={(event) => {
            setQuery(event.currentTarget.value);
            setSelected(0);
          }}
          onKeyDown={onKeyDown}
        />
        <ul id="palette-results" role="listbox" aria-label="Results">
          {matches.map((item, index) => (
            <li
              key={`${item.icon} ${item.title}`}
              id={`palette-${index}`}
              role="option"
              aria-selected={index === selected}
              aria-disabled={item.refused !== undefined}
              onClick={() => choose(item)}
              onMouseMove={() => setSelected(index)}
            >
              <Icon name={item.icon} />
              <span>{item.title}</span>
              <span class="quiet">{item.detail}</span>
            </li>
          ))}
        </ul>
        {matches.length === 0 && <p class="empty">No match</p>}
      </div>
    </Dialog>
  );
}
