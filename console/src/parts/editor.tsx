// The editor of an object as YAML: a dry run on the server, the difference and the effects, then the change.
import { useEffect, useState } from 'preact/hooks';
import { writeDefinition } from '../actions/definition';
import { messageOf } from '../api/client';
import { KIND_NAMES, type PluralName, type StoredObject } from '../api/objects';
import { difference, withContext, type DifferenceLine } from '../derive/difference';
import { editable, toYaml } from '../derive/yaml';
import { useSchema } from '../state/schema';
import { refusal } from '../state/session';
import { CommandLine } from './basics';
import { Icon } from './icon';
import { YamlInput } from './yaml-input';

type Check =
  | { phase: 'none' }
  | { phase: 'busy' }
  | { phase: 'refused'; message: string }
  | { phase: 'checked'; lines: DifferenceLine[]; effects: string[] }
  | { phase: 'saved' };

interface EditorProps {
  plural: Exclude<PluralName, 'events'>;
  /** Stored object; undefined for a new one. */
  object: StoredObject | undefined;
  /** Text of a new object. Another text replaces the edited one. */
  template?: string;
  onSaved?: () => void;
}

/** Returns the text to edit. */
function initialText({ object, template }: EditorProps): string {
  return object === undefined ? (template ?? '') : toYaml(editable(object));
}

export function Editor(props: EditorProps) {
  const { plural, object, template } = props;
  const [start, setStart] = useState(() => initialText(props));
  const [text, setText] = useState(start);
  const [check, setCheck] = useState<Check>({ phase: 'none' });
  useEffect(() => {
    if (object !== undefined || template === undefined) return;
    setText(template);
    setCheck({ phase: 'none' });
  }, [template]);
  const schema = useSchema(KIND_NAMES[plural]);
  const isNew = object === undefined;
  const reason = refusal({ verb: isNew ? 'create' : 'update', resource: plural });
  const changed = isNew || text !== start;
  const canCheck = changed && reason === undefined;
  const current = isNew ? '' : initialText(props);
  const isOutdated = !isNew && current !== start;

  const send = async (isDryRun: boolean) => {
    setCheck({ phase: 'busy' });
    try {
      const base = isNew ? undefined : { name: object.metadata.name, text: start };
      const answer = await writeDefinition({ plural, text, base, isDryRun });
      if (!isDryRun) {
        const stored = toYaml(editable(answer.body));
        setStart(stored);
        setText(stored);
        setCheck({ phase: 'saved' });
        props.onSaved?.();
        return;
      }
      const before = isNew ? '' : start;
      const after = toYaml(editable(answer.body));
      setCheck({ phase: 'checked', lines: withContext(difference(before, after)), effects: answer.warnings });
    } catch (error) {
      setCheck({ phase: 'refused', message: messageOf(error) });
    }
  };
  const reset = () => {
    setStart(current);
    setText(current);
    setCheck({ phase: 'none' });
  };
  return (
    <div class="editor">
      <label class="hidden-text" for={`editor-${plural}`}>
        YAML of the {KIND_NAMES[plural]}
      </label>
      <YamlInput
        id={`editor-${plural}`}
        value={text}
        readOnly={reason !== undefined}
        schema={schema}
        change={(changedText) => {
          setText(changedText);
          setCheck({ phase: 'none' });
        }}
      />
      {reason !== undefined && <p class="quiet">Read only: {reason}.</p>}
      {isOutdated && (
        <p class="state warn">
          <Icon name="warn" /> The object has changed since this text was read.
          <button type="button" onClick={reset}>
            Read again
          </button>
        </p>
      )}
      <CheckResult check={check} />
      <div class="buttons">
        {changed && !isNew && (
          <button type="button" onClick={reset}>
            Discard
          </button>
        )}
        <button type="button" disabled={!canCheck} title={reason} onClick={() => void send(true)}>
          Check
        </button>
        <button
          type="button"
          class="primary"
          disabled={check.phase !== 'checked'}
          title={check.phase === 'checked' ? undefined : 'Check the change first'}
          onClick={() => void send(false)}
        >
          Apply
        </button>
      </div>
      {changed && <CommandLine command="hactl apply -f FILE" />}
    </div>
  );
}

/** A button that opens the editor of a new object; disabled with the reason if the user lacks the permission. */
export function NewButton(props: { label: string; plural: EditorProps['plural']; open: () => void }) {
  const reason = refusal({ verb: 'create', resource: props.plural });
  return (
    <button type="button" aria-disabled={reason !== undefined} title={reason} onClick={() => reason === undefined && props.open()}>
      {props.label}
      {reason !== undefined && <span class="hidden-text">: {reason}</span>}
    </button>
  );
}

function CheckResult({ check }: { check: Check }) {
  switch (check.phase) {
    case 'busy':
      return <p class="quiet" role="status">Checking on the server…</p>;
    case 'refused':
      return (
        <p class="state bad preserve" role="alert">
          <Icon name="bad" /> {check.message}
        </p>
      );
    case 'saved':
      return (
        <p class="state ok" role="status">
          <Icon name="ok" /> Applied
        </p>
      );
    case 'checked':
      return (
        <div aria-live="polite">
          <h3>Effects</h3>
          {check.effects.length === 0 ? (
            <p class="quiet">No service starts, stops or moves.</p>
          ) : (
            <ul>
              {check.effects.map((effect) => (
                <li key={effect}>{effect.replace('->', '→')}</li>
              ))}
            </ul>
          )}
          <h3>Difference</h3>
          {check.lines.length === 0 && <p class="quiet">No difference.</p>}
          <pre class="difference" tabIndex={0}>
            {check.lines.map((line, index) => (
              <div key={index} class={line.sign === '+' ? 'added' : line.sign === '-' ? 'removed' : undefined}>
                {line.sign} {line.text}
              </div>
            ))}
          </pre>
        </div>
      );
    default:
      return null;
  }
}
