// A form of settings: fields from a schema, values as texts, and the changed fields as a merge patch.

import type { Schema } from './schema';

export interface Field {
  /** Path below the spec, such as `timing.profile`. */
  path: string;
  kind: 'boolean' | 'choice' | 'integer' | 'number' | 'text';
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
    .replace(/^io\b/, 'I/O');
  return words.charAt(0).toUpperCase() + words.slice(1) + unit;
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
    default:
      return schema.anyOf === undefined ? undefined : 'text';
  }
}

const textOf = (value: unknown) => (value === undefined || value === null ? '' : String(value));

/** Returns the fields below a path, in the order of the schema. Lists and maps have no field; the YAML editor changes them. */
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

function at(object: unknown, path: string): unknown {
  return path.split('.').reduce<unknown>((part, name) => (part as Record<string, unknown> | null | undefined)?.[name], object);
}

/** Returns the texts of the fields in a spec. */
export function valuesOf(fields: Field[], spec: unknown): Values {
  return Object.fromEntries(fields.map((field) => [field.path, textOf(at(spec, field.path))]));
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

function typed(field: Field, text: string): unknown {
  if (text === '') return null;
  if (field.kind === 'boolean') return text === 'true';
  if (field.kind === 'integer' || field.kind === 'number') return Number(text);
  // A number without a unit is a number in fields that accept both, such as `maxFencing`.
  return field.kind === 'text' && /^\d+$/.test(text) ? Number(text) : text;
}

/** Returns the fields that differ from the stored spec. */
export function changed(fields: Field[], stored: Values, values: Values): Field[] {
  return fields.filter((field) => (values[field.path] ?? '') !== (stored[field.path] ?? ''));
}

/** Returns the merge patch of the changed fields, below `spec`. */
export function patchOf(fields: Field[], stored: Values, values: Values): Record<string, unknown> {
  const patch: Record<string, unknown> = {};
  for (const field of changed(fields, stored, values)) {
    const names = field.path.split('.');
    const last = names.pop() ?? '';
    let part = patch;
    for (const name of names) part = (part[name] ??= {}) as Record<string, unknown>;
    part[last] = typed(field, values[field.path] ?? '');
  }
  return patch;
}

/** Returns the arguments of `hactl set` with the same effect. */
export function assignments(fields: Field[], stored: Values, values: Values): string {
  return changed(fields, stored, values)
    .map((field) => `${field.path}=${values[field.path] ?? ''}`)
    .join(' ');
}
