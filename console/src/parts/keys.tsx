// The list of keys.
import { useNavigationEntries } from '../navigation-entries';
import { Dialog } from './dialog';

export function KeyHelp({ onClose }: { onClose: () => void }) {
  const entries = useNavigationEntries();
  const keys: [string, string][] = [
    ['/ or Ctrl K', 'Search objects and actions'],
    ['?', 'List the keys'],
    ['Esc', 'Close a dialog'],
    ['Enter', 'Confirm a dialog or open a link'],
    ['Ctrl Space', 'In an editor: show possible fields and values'],
    ...entries.map((entry): [string, string] => [`g ${entry.key}`, entry.title]),
  ];
  return (
    <Dialog title="Keys" onClose={onClose}>
      <h2>Keys</h2>
      <dl class="keys">
        {keys.map(([key, meaning]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <p class="quiet">In the placement view, the arrow keys move between services, and Enter selects a target node.</p>
      <div class="buttons">
        <button type="button" onClick={onClose} autofocus>
          Close
        </button>
      </div>
    </Dialog>
  );
}
