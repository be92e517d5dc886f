// The choice of a target node, with the server's verdict about each node.
import { useEffect, useState } from 'preact/hooks';
import { requestConfirmation } from '../actions/run';
import { migrate, relocate } from '../actions/services';
import { readExplanation } from '../api/explanation';
import type { Explanation } from '../api/objects';
import { refusal } from '../state/session';
import { State } from './basics';
import { Dialog } from './dialog';

export type MoveKind = 'Migrate' | 'Relocate';

export interface Target {
  node: string;
  /** Reasons why the node is refused; empty if it is eligible for all services. */
  reasons: string[];
}

/** Combines the verdicts of several services: a node is a target if it is eligible for each of them. */
export function targetsOf(explanations: Explanation[]): Target[] {
  const targets = new Map<string, Target>();
  for (const explanation of explanations) {
    for (const verdict of explanation.nodes) {
      const target = targets.get(verdict.node) ?? { node: verdict.node, reasons: [] };
      targets.set(verdict.node, target);
      if (verdict.current && explanations.length === 1) target.reasons.push(`${explanation.resource} is assigned to this node`);
      else if (!verdict.allowed) target.reasons.push(...verdict.causes.map((cause) => cause.message));
    }
  }
  return [...targets.values()].sort((a, b) => a.reasons.length - b.reasons.length || (a.node < b.node ? -1 : 1));
}

export function TargetDialog({ names, kind, onClose }: { names: string[]; kind: MoveKind; onClose: () => void }) {
  const [targets, setTargets] = useState<Target[] | undefined>(undefined);
  const [error, setError] = useState('');
  useEffect(() => {
    Promise.all(names.map(readExplanation)).then(
      (explanations) => setTargets(targetsOf(explanations)),
      (failure: unknown) => setError(failure instanceof Error ? failure.message : String(failure)),
    );
  }, [names.join(' ')]);
  const choose = (node: string) => {
    onClose();
    requestConfirmation(names.map((name) => (kind === 'Migrate' ? migrate(name, node) : relocate(name, node))));
  };
  const title = `${kind} ${names.length === 1 ? names[0] : `${names.length} services`}`;
  return (
    <Dialog title={title} onClose={onClose}>
      <h2>{title}</h2>
      {error !== '' && <p class="state bad">{error}</p>}
      {targets === undefined && error === '' && <p class="quiet">Reading eligible nodes…</p>}
      <ul class="targets">
        {targets?.map((target) => (
          <li key={target.node}>
            <button type="button" disabled={target.reasons.length > 0} onClick={() => choose(target.node)}>
              {target.node}
            </button>
            {target.reasons.length === 0 ? (
              <State tone="ok">Eligible</State>
            ) : (
              <span class="quiet">{target.reasons.join('; ')}</span>
            )}
          </li>
        ))}
      </ul>
      <div class="buttons">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
      </div>
    </Dialog>
  );
}

export function MoveButton({ names, kind }: { names: string[]; kind: MoveKind }) {
  const [open, setOpen] = useState(false);
  const reason = refusal({ verb: 'create', resource: `operations/${kind}` });
  return (
    <>
      <button type="button" aria-disabled={reason !== undefined} title={reason} onClick={() => reason === undefined && setOpen(true)}>
        {kind}…{reason !== undefined && <span class="hidden-text">: {reason}</span>}
      </button>
      {open && <TargetDialog names={names} kind={kind} onClose={() => setOpen(false)} />}
    </>
  );
}
