// Forms: fields from a schema, values as texts, and the changed fields as a merge patch or as a new object.

import type { Schema } from './schema';

export interface Field {
  /** Path below the spec, such as `timing.profile`. */
  path: string;
  /** `quantity` is a text, or a number without a unit; `list` has commas between its parts. */
  kind: 'boolean' | 'choice' | 'integer' | 'number' | 'text' | 'quantity' | 'list';
  description: string;
  choices: string[];
  /** Value that applies if the field is absent; empty if the schema has none. */
  default: string;
  min: number | undefined;
  max: number | undefined;
}

/** Texts of a form by path. An empty text removes the field, so that its default applies. */
export type Values = Record<string, string>;

/** Returns a label, such as `Heartbeat interval (s)` for `timing.heartbeatIntervalSeconds`. */
export function labelOf(path: string): string {
  const name = path.split('.').pop() ?? path;
  const unit = name.endsWith('Seconds') ? ' (s)' : name.endsWith('Percent') ? ' (%)' : '';
  const words = name
    .replace(/(Seconds|Percent)$/, '')
    .replace(/([A-Z])/g, ' $1')
    .toLowerCase()
    .replace(/^io\b/, 'I/O')
    .replace(/^cpu\b/, 'CPU');
  return words.charAt(0).toUpperCase() + words.slice(1) + unit;
}

/** Returns the label of a field below this number of parts of its path, such as `Requests: memory` for `requests.memory`. */
export function labelBelow(path: string, parts: number): string {
  const outer = path.split('.').slice(parts, -1);
  const label = labelOf(path);
  if (outer.length === 0) return label;
  const inner = label.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
  return `${outer.map(labelOf).join(': ')}: ${inner}`;
}

function kindOf(schema: Schema): Field['kind'] | undefined {
  if (schema.enum !== undefined) return 'choice';
  switch (schema.type) {
    case 'boolean':
    case 'integer':
    case 'number':
      return schema.type;
    case 'string':
      return 'text';
    case 'array':
      return schema.items?.type === 'string' ? 'list' : undefined;
    default:
      return schema.anyOf === undefined ? undefined : 'quantity';
  }
}

/** Returns a value as text: a list with commas, a map of names to numbers as `NAME:NUMBER`. */
function textOf(value: unknown): string {
  if (value === undefined || value === null) return '';
  if (Array.isArray(value)) return value.join(',');
  if (typeof value !== 'object') return String(value);
  return Object.entries(value)
    .map(([name, number]) => (number === 0 ? name : `${name}:${number}`))
    .join(',');
}

/** Returns the fields below a path, in the order of the schema. Maps and lists of objects have no field; the YAML editor changes them. */
export function fieldsOf(schema: Schema | undefined, path: string): Field[] {
  if (schema === undefined) return [];
  if (schema.properties !== undefined) {
    return Object.entries(schema.properties).flatMap(([name, property]) =>
      fieldsOf(property, path === '' ? name : `${path}.${name}`),
    );
  }
  const kind = kindOf(schema);
  if (kind === undefined) return [];
  const bounded = kind === 'integer' || kind === 'number';
  return [
    {
      path,
      kind,
      description: schema.description ?? '',
      choices: (schema.enum ?? []).map(String),
      default: textOf(schema.default),
      min: bounded ? schema.minimum : undefined,
      // The largest integers of the schema are those of its type, not limits of the setting.
      max: bounded && (schema.maximum ?? 0) < 4_294_967_295 ? schema.maximum : undefined,
    },
  ];
}

function valueAt(object: unknown, path: string): unknown {
  return path.split('.').reduce<unknown>((part, name) => (part as Record<string, unknown> | null | undefined)?.[name], object);
}

/** Returns the texts of the fields in a spec. */
export function valuesOf(fields: Field[], spec: unknown): Values {
  return Object.fromEntries(fields.map((field) => [field.path, textOf(valueAt(spec, field.path))]));
}

/** Returns the problem of a text; undefined if it is valid. The server also checks the relations between fields. */
export function problemOf(field: Field, text: string): string | undefined {
  if (text === '' || (field.kind !== 'integer' && field.kind !== 'number')) return undefined;
  const value = Number(text);
  if (!Number.isFinite(value)) return 'must be a number';
  if (field.kind === 'integer' && !Number.isInteger(value)) return 'must be an integer';
  if (field.min !== undefined && value < field.min) return `must be at least ${field.min}`;
  if (field.max !== undefined && value > field.max) return `must be at most ${field.max}`;
  return undefined;
}

function parseFieldText(field: Field, text: string): unknown {
  if (text === '') return null;
  if (field.kind === 'boolean') return text === 'true';
  if (field.kind === 'list') return text.split(',').map((part) => part.trim()).filter((part) => part !== '');
  if (field.kind === 'integer' || field.kind === 'number') return Number(text);
  return field.kind === 'quantity' && /^\d+$/.test(text) ? Number(text) : text;
}

/** Returns the fields that differ from the stored spec. */
export function changedFields(fields: Field[], stored: Values, values: Values): Field[] {
  return fields.filter((field) => (values[field.path] ?? '') !== (stored[field.path] ?? ''));
}

/** Returns the spec of a new object with the fields that have a text. */
export function specOf(fields: Field[], values: Values): Record<string, unknown> {
  return patchOf(fields, {}, values);
}

/** Returns the merge patch of the changed fields, below `spec`. */
export function patchOf(fields: Field[], stored: Values, values: Values): Record<string, unknown> {
  const patch: Record<string, unknown> = {};
  for (const field of changedFields(fields, stored, values)) {
    const names = field.path.split('.');
    const last = names.pop() ?? '';
    let part = patch;
    for (const name of names) part = (part[name] ??= {}) as Record<string, unknown>;
    part[last] = parseFieldText(field, values[field.path] ?? '');
  }
  return patch;
}

/** Returns the arguments of `hactl set` with the same effect. */
export function assignments(fields: Field[], stored: Values, values: Values): string {
  return changedFields(fields, stored, values)
    .map((field) => `${field.path}=${quoted(values[field.path] ?? '')}`)
    .join(' ');
}

/** Returns a text as one word of a shell. */
function quoted(text: string): string {
  return /^[A-Za-z0-9_.,:/%@+-]*$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}
