// The dialog of a new object: a form that writes the definition as YAML, and the editor that checks and applies it.
import { useState } from 'preact/hooks';
import { KIND_NAMES } from '../api/objects';
import { fieldsOf, labelBelow, labelOf, problemOf, specOf, type Field, type Values } from '../derive/form';
import type { Schema } from '../derive/schema';
import { toYaml } from '../derive/yaml';
import { useObjects } from '../state/cluster';
import { useSchema } from '../state/schema';
import { Loading } from './basics';
import { Dialog } from './dialog';
import { Editor } from './editor';
import { FieldRow } from './form';

export type NewPlural = 'resources' | 'affinityrules' | 'groups' | 'nodegroups';

/** A part of the spec of which an object has one of several forms. */
interface Variant {
  label: string;
  /** Path of the part; empty if the forms are fields of the spec itself. */
  path: string;
  /** Forms by name; undefined for all fields at the path. */
  names?: string[];
}

const VARIANTS: Partial<Record<NewPlural, Variant>> = {
  resources: { label: 'Driver', path: 'driver' },
  affinityrules: { label: 'Affinity to', path: '', names: ['nodeAffinity', 'resourceAffinity'] },
};

/** Fields of a resource that the form shows first. */
const FIRST = ['state', 'group', 'requests.cpu', 'requests.memory', 'maxRestart', 'maxRelocate', 'comment'];

const NAME: Field = {
  path: 'name',
  kind: 'text',
  description: 'Name of the object: lower-case letters, digits, dots and dashes.',
  choices: [],
  default: '',
  min: undefined,
  max: undefined,
};

/** Returns the schema at a path; the whole schema for an empty path. */
function schemaAt(schema: Schema, path: string): Schema | undefined {
  if (path === '') return schema;
  return path.split('.').reduce<Schema | undefined>((part, member) => part?.properties?.[member], schema);
}

/** Returns the paths of the forms of a variant. */
function formsOf(schema: Schema, variant: Variant): string[] {
  const names = variant.names ?? Object.keys(schemaAt(schema, variant.path)?.properties ?? {});
  return names.map((name) => (variant.path === '' ? name : `${variant.path}.${name}`));
}

const isBelow = (path: string, outer: string) => path.startsWith(`${outer}.`);

export function NewObject({ plural, onClose }: { plural: NewPlural; onClose: () => void }) {
  const kind = KIND_NAMES[plural];
  const schema = useSchema(kind)?.properties?.['spec'];
  const groups = useObjects('groups') ?? [];
  const [values, setValues] = useState<Values>({});
  const [name, setName] = useState('');
  const [chosen, setChosen] = useState('');
  if (schema === undefined) return <Loading />;
  const variant = VARIANTS[plural];
  const forms = variant === undefined ? [] : formsOf(schema, variant);
  const form = chosen === '' ? (forms[0] ?? '') : chosen;
  const fields = fieldsOf(schema, '').filter((field) => !forms.some((other) => other !== form && isBelow(field.path, other)));
  const first = fields.filter((field) => plural !== 'resources' || isBelow(field.path, form) || FIRST.includes(field.path));
  const more = fields.filter((field) => !first.includes(field));
  const spec = specOf(fields, values);
  if (form !== '') addForm(spec, form);
  const text = toYaml({ apiVersion: 'hactl.io/v1', kind, metadata: { name }, spec });
  const row = (field: Field) => (
    <FieldRow
      key={field.path}
      field={field}
      label={labelBelow(field.path, form !== '' && isBelow(field.path, form) ? form.split('.').length : 0)}
      suggestions={field.path === 'group' ? groups.map((group) => group.metadata.name) : undefined}
      text={values[field.path] ?? ''}
      isChanged={false}
      problem={problemOf(field, values[field.path] ?? '')}
      readOnly={false}
      set={(value) => setValues({ ...values, [field.path]: value })}
    />
  );
  return (
    <Dialog title={`New ${kind}`} wide onClose={onClose}>
      <h2>New {kind}</h2>
      <div class="form">
        <FieldRow field={NAME} label="Name" text={name} isChanged={false} problem={undefined} readOnly={false} set={setName} />
        {variant !== undefined && (
          <div class="form-row">
            <label for="new-object-form">{variant.label}</label>
            <select id="new-object-form" value={form} onChange={(event) => setChosen(event.currentTarget.value)}>
              {forms.map((path) => (
                <option key={path} value={path}>
                  {variant.names === undefined ? path.slice(path.lastIndexOf('.') + 1) : labelOf(path)}
                </option>
              ))}
            </select>
            <p class="quiet">{schemaAt(schema, form)?.description}</p>
          </div>
        )}
        {first.map(row)}
      </div>
      {more.length > 0 && (
        <details>
          <summary>More fields</summary>
          <div class="form">{more.map(row)}</div>
        </details>
      )}
      <h3>Definition</h3>
      <p class="quiet">The form writes this text. The definition can have more fields; a change in the form writes it again.</p>
      <Editor plural={plural} object={undefined} template={text} onSaved={onClose} />
    </Dialog>
  );
}

/** Adds the chosen form to a spec, also if none of its fields has a value. */
function addForm(spec: Record<string, unknown>, path: string): void {
  let part = spec;
  for (const member of path.split('.')) part = (part[member] ??= {}) as Record<string, unknown>;
}
