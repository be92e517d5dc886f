// Forms of the fields in a spec: a row for each field, the end with its buttons, and a complete form of an object.
import { useId, useState } from 'preact/hooks';
import { patchAction, type Action } from '../actions/action';
import { requestConfirmation } from '../actions/run';
import { KIND_NAMES, type PluralName, type StoredObject } from '../api/objects';
import { assignments, changedFields, fieldsOf, labelBelow, patchOf, problemOf, valuesOf, type Field, type Values } from '../derive/form';
import { useSchema } from '../state/schema';
import { refusal } from '../state/session';
import { CommandLine } from './basics';
import { Icon } from './icon';

interface RowProps {
  field: Field;
  label: string;
  /** Values that the browser proposes. */
  suggestions?: string[] | undefined;
  text: string;
  isChanged: boolean;
  problem: string | undefined;
  readOnly: boolean;
  set: (text: string) => void;
}

function boundsText({ min, max }: Field): string {
  if (min !== undefined && max !== undefined) return `From ${min} to ${max}.`;
  if (min !== undefined) return `At least ${min}.`;
  return max === undefined ? '' : `At most ${max}.`;
}

export function FieldRow({ field, label, suggestions, text, isChanged, problem, readOnly, set }: RowProps) {
  const id = useId();
  const bounds = boundsText(field);
  const shared = { id, disabled: readOnly, 'aria-describedby': `${id}-help`, 'aria-invalid': problem !== undefined };
  return (
    <div class={isChanged ? 'form-row changed' : 'form-row'}>
      <label for={id}>
        {label}
        {isChanged && <span class="hidden-text"> (changed)</span>}
      </label>
      {field.kind === 'boolean' ? (
        <input
          {...shared}
          type="checkbox"
          checked={(text === '' ? field.default : text) === 'true'}
          onChange={(event) => set(`${event.currentTarget.checked}`)}
        />
      ) : field.kind === 'choice' ? (
        <select {...shared} value={text} onChange={(event) => set(event.currentTarget.value)}>
          <option value="">{field.default === '' ? 'Not set' : `${field.default} (default)`}</option>
          {field.choices.map((choice) => (
            <option key={choice} value={choice}>
              {choice}
            </option>
          ))}
        </select>
      ) : (
        <input
          {...shared}
          type="text"
          list={suggestions === undefined ? undefined : `${id}-values`}
          inputMode={field.kind === 'integer' || field.kind === 'number' ? 'decimal' : 'text'}
          autocomplete="off"
          placeholder={field.default}
          value={text}
          onInput={(event) => set(event.currentTarget.value.trim())}
        />
      )}
      {suggestions !== undefined && (
        <datalist id={`${id}-values`}>
          {suggestions.map((value) => (
            <option key={value} value={value} />
          ))}
        </datalist>
      )}
      <p class="quiet" id={`${id}-help`}>
        {problem !== undefined && (
          <span class="state bad">
            <Icon name="bad" /> {problem}
          </span>
        )}
        {field.description.replaceAll('`', '')} {bounds}
      </p>
    </div>
  );
}

interface EndProps {
  action: Action;
  /** Number of changed fields. */
  changes: number;
  isValid: boolean;
  /** Text of the button. */
  label: string;
  reset: () => void;
}

export function FormEnd({ action, changes, isValid, label, reset }: EndProps) {
  const reason = refusal(action.permission);
  return (
    <>
      <div class="buttons form-end">
        {reason !== undefined && <span class="quiet">Read only: {reason}.</span>}
        {changes > 0 && (
          <span class="quiet" role="status">
            {changes} {changes === 1 ? 'setting is' : 'settings are'} changed
          </span>
        )}
        <button type="button" disabled={changes === 0} onClick={reset}>
          Discard changes
        </button>
        <button
          type="button"
          class="primary"
          disabled={changes === 0 || reason !== undefined || !isValid}
          onClick={() => requestConfirmation([action])}
        >
          {label}
        </button>
      </div>
      {changes > 0 && <CommandLine command={action.command} />}
    </>
  );
}

interface FormProps {
  plural: Exclude<PluralName, 'events'>;
  object: StoredObject;
  /** Returns `true` if the form shows a field. */
  includes: (path: string) => boolean;
  /** Proposed values by path. */
  suggestions?: Record<string, string[]>;
}

/** The fields of a stored object. A change is confirmed with its effects, like every action. */
export function ObjectForm({ plural, object, includes, suggestions }: FormProps) {
  const [edits, setEdits] = useState<Values>({});
  const kind = KIND_NAMES[plural];
  const schema = useSchema(kind)?.properties?.['spec'];
  const fields = fieldsOf(schema, '').filter((field) => includes(field.path));
  const stored = valuesOf(fields, (object as { spec?: unknown }).spec);
  const values = { ...stored, ...edits };
  const changes = changedFields(fields, stored, values);
  const { name } = object.metadata;
  const action: Action = {
    label: 'Apply',
    title: `Change ${kind.toLowerCase()} ${name}`,
    command: `hactl set ${kind.toLowerCase()}/${name} ${assignments(fields, stored, values)}`,
    ...patchAction(plural, name, { spec: patchOf(fields, stored, values) }),
  };
  const reason = refusal(action.permission);
  return (
    <>
      <div class="form">
        {fields.map((field) => (
          <FieldRow
            key={field.path}
            field={field}
            label={labelBelow(field.path, 0)}
            suggestions={suggestions?.[field.path]}
            text={values[field.path] ?? ''}
            isChanged={changes.includes(field)}
            problem={problemOf(field, values[field.path] ?? '')}
            readOnly={reason !== undefined}
            set={(text) => setEdits({ ...edits, [field.path]: text })}
          />
        ))}
      </div>
      <FormEnd
        action={action}
        changes={changes.length}
        isValid={fields.every((field) => problemOf(field, values[field.path] ?? '') === undefined)}
        label="Apply changes"
        reset={() => setEdits({})}
      />
    </>
  );
}
