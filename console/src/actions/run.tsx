// Running actions: the confirmation with the effects by a dry run, and the list of outcomes.
import { useEffect, useState } from 'preact/hooks';
import { messageOf } from '../api/client';
import type { Operation } from '../api/objects';
import { CommandLine, State } from '../parts/basics';
import { Dialog } from '../parts/dialog';
import { Icon } from '../parts/icon';
import { phaseTone } from '../derive/tones';
import { useObjects } from '../state/cluster';
import { refusal } from '../state/session';
import { Signal, useSignal } from '../state/signal';
import type { Action } from './action';

interface Outcome {
  id: number;
  title: string;
  /** Operation whose progress is shown; undefined if the request itself was the change. */
  operation: string | undefined;
  error: string | undefined;
}

const pending = new Signal<Action[] | undefined>(undefined);
const outcomes = new Signal<Outcome[]>([]);
let lastId = 0;

/** Opens the confirmation of one or several actions. */
export function requestConfirmation(actions: Action[]): void {
  if (actions.length > 0) pending.set(actions);
}

function addOutcome(outcome: Omit<Outcome, 'id'>): void {
  lastId += 1;
  outcomes.set([...outcomes.value.slice(-4), { ...outcome, id: lastId }]);
}

function removeOutcome(id: number): void {
  outcomes.set(outcomes.value.filter((outcome) => outcome.id !== id));
}

async function execute(action: Action): Promise<void> {
  try {
    const { body } = await action.send(false);
    const answer = body as Partial<Operation>;
    const operation = answer.kind === 'Operation' ? answer.metadata?.name : undefined;
    addOutcome({ title: action.title, operation, error: undefined });
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    addOutcome({ title: action.title, operation: undefined, error: text });
  }
}

type Effects = { phase: 'loading' } | { phase: 'known'; lines: string[]; errors: string[] };

/** Reads the effects of the actions by dry runs. */
function useEffects(actions: Action[]): Effects {
  const [effects, setEffects] = useState<Effects>({ phase: 'loading' });
  useEffect(() => {
    let current = true;
    const readEffect = async (action: Action) => {
      try {
        const { warnings } = await action.send(true);
        return { lines: (await action.readEffects?.()) ?? warnings, error: undefined };
      } catch (error) {
        return { lines: [], error: messageOf(error) };
      }
    };
    void Promise.all(actions.map(readEffect)).then((results) => {
      if (!current) return;
      const lines = [...new Set(results.flatMap((result) => result.lines))];
      const errors = results.map((result) => result.error).filter((error): error is string => error !== undefined);
      setEffects({ phase: 'known', lines, errors: [...new Set(errors)] });
    });
    return () => {
      current = false;
    };
  }, [actions]);
  return effects;
}

function Confirmation({ actions }: { actions: Action[] }) {
  const effects = useEffects(actions);
  const [confirmed, setConfirmed] = useState(false);
  const [first] = actions;
  const close = () => pending.set(undefined);
  if (first === undefined) return null;
  const title = actions.length === 1 ? first.title : `${first.label} ${actions.length} objects`;
  const warnings = [...new Set(actions.map((action) => action.warning).filter((one): one is string => one !== undefined))];
  const refused = effects.phase === 'known' && effects.errors.length === actions.length;
  const run = () => {
    close();
    for (const action of actions) void execute(action);
  };
  return (
    <Dialog title={title} onClose={close}>
      <h2>{title}</h2>
      {warnings.map((warning) => (
        <p class="warning" key={warning}>
          <Icon name="warn" />
          <span>
            <strong>WARNING:</strong> {warning}
          </span>
        </p>
      ))}
      <EffectsList effects={effects} />
      {actions.slice(0, 8).map((action) => (
        <CommandLine key={action.command} command={action.command} />
      ))}
      {actions.length > 8 && <p class="quiet">and {actions.length - 8} more commands</p>}
      {warnings.length > 0 && (
        <label class="check">
          <input type="checkbox" checked={confirmed} onChange={() => setConfirmed(!confirmed)} /> I have read the warning
        </label>
      )}
      <div class="buttons">
        <button type="button" onClick={close}>
          Cancel
        </button>
        <button
          type="button"
          class={warnings.length > 0 ? 'primary danger' : 'primary'}
          autofocus={warnings.length === 0}
          disabled={refused || (warnings.length > 0 && !confirmed)}
          onClick={run}
        >
          {first.label}
        </button>
      </div>
    </Dialog>
  );
}

function EffectsList({ effects }: { effects: Effects }) {
  if (effects.phase === 'loading') return <p class="quiet">Checking the effects…</p>;
  return (
    <div class="effects" aria-live="polite">
      {effects.errors.map((error) => (
        <p class="state bad" key={error}>
          <Icon name="bad" /> {error}
        </p>
      ))}
      {effects.lines.length > 0 && (
        <>
          <h3>Effects</h3>
          <ul>
            {effects.lines.map((line) => (
              <li key={line}>{line.replace('->', '→')}</li>
            ))}
          </ul>
        </>
      )}
      {effects.lines.length === 0 && effects.errors.length === 0 && <p class="quiet">No service moves.</p>}
    </div>
  );
}

/** The progress of an operation; removes itself some seconds after success. */
function OutcomeLine({ outcome }: { outcome: Outcome }) {
  const operations = useObjects('operations');
  const operation = operations?.find((item) => item.metadata.name === outcome.operation);
  const phase = outcome.operation === undefined ? undefined : (operation?.status?.phase ?? 'Pending');
  const succeeded = outcome.error === undefined && (phase === undefined || phase === 'Succeeded');
  useEffect(() => {
    if (!succeeded) return undefined;
    const timer = setTimeout(() => removeOutcome(outcome.id), 6000);
    return () => clearTimeout(timer);
  }, [succeeded, outcome.id]);
  const tone = outcome.error !== undefined ? 'bad' : phase === undefined ? 'ok' : phaseTone(phase);
  const message = outcome.error ?? operation?.status?.message ?? '';
  return (
    <li class={`outcome ${tone}`}>
      <div>
        <State tone={tone}>{outcome.error !== undefined ? 'Refused' : (phase ?? 'Accepted')}</State>
        <strong>{outcome.title}</strong>
        {message !== '' && <p>{message}</p>}
      </div>
      <button type="button" class="plain" aria-label="Close" onClick={() => removeOutcome(outcome.id)}>
        <Icon name="bad" />
      </button>
    </li>
  );
}

/** The confirmation and the outcomes; the shell shows them above every view. */
export function ActionLayer() {
  const actions = useSignal(pending);
  const list = useSignal(outcomes);
  return (
    <>
      {actions !== undefined && <Confirmation actions={actions} />}
      <ul class="outcomes" aria-live="polite" aria-label="Outcomes">
        {list.map((outcome) => (
          <OutcomeLine key={outcome.id} outcome={outcome} />
        ))}
      </ul>
    </>
  );
}

/** A button for an action; disabled with the reason if the user lacks the permission. */
export function ActionButton({ actions, label, primary }: { actions: Action[]; label?: string; primary?: boolean }) {
  const [first] = actions;
  if (first === undefined) return null;
  const reason = refusal(first.permission);
  const button = (
    <button
      type="button"
      class={primary === true ? 'primary' : undefined}
      aria-disabled={reason !== undefined}
      title={reason ?? first.command}
      onClick={() => {
        if (reason === undefined) requestConfirmation(actions);
      }}
    >
      {label ?? first.label}
      {reason !== undefined && <span class="hidden-text">: {reason}</span>}
    </button>
  );
  return button;
}
