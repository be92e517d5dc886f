// JSON values as YAML text, for the editor. The API reads YAML itself.

/** Returns `true` if a text needs no quotes in YAML. */
function isPlain(text: string): boolean {
  if (!/^[A-Za-z_/.][A-Za-z0-9_ ./:@+-]*$/.test(text) || /: |:$| $/.test(text)) return false;
  return !/^(true|false|null|yes|no|on|off|y|n|\.nan|\.inf)$/i.test(text) && !/^\.?[0-9]/.test(text);
}

function scalar(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value ?? null);
  return isPlain(value) ? value : JSON.stringify(value);
}

function isEmpty(value: object): boolean {
  return Object.keys(value).length === 0;
}

/** Returns the lines of a value below its key. */
function lines(value: unknown, indent: string): string[] {
  if (Array.isArray(value)) {
    return value.flatMap((item) => {
      if (typeof item !== 'object' || item === null || isEmpty(item)) return [`${indent}- ${inline(item)}`];
      const [first = '', ...rest] = lines(item, `${indent}  `);
      return [`${indent}- ${first.slice(indent.length + 2)}`, ...rest];
    });
  }
  return Object.entries(value as Record<string, unknown>)
    .filter(([, member]) => member !== undefined)
    .flatMap(([key, member]) => {
      const name = isPlain(key) ? key : JSON.stringify(key);
      if (typeof member === 'string' && member.includes('\n') && !/^\s/.test(member)) {
        const chomp = member.endsWith('\n') ? '|' : '|-';
        const text = member.replace(/\n$/, '').split('\n');
        return [`${indent}${name}: ${chomp}`, ...text.map((line) => (line === '' ? '' : `${indent}  ${line}`))];
      }
      if (typeof member !== 'object' || member === null || isEmpty(member)) return [`${indent}${name}: ${inline(member)}`];
      const inner = Array.isArray(member) ? indent : `${indent}  `;
      return [`${indent}${name}:`, ...lines(member, inner)];
    });
}

function inline(value: unknown): string {
  if (Array.isArray(value)) return '[]';
  return typeof value === 'object' && value !== null ? '{}' : scalar(value);
}

/** Returns the YAML text of an object. */
export function toYaml(value: Record<string, unknown>): string {
  return `${lines(value, '').join('\n')}\n`;
}

/** Returns the part of an object that a user edits: without status and without the fields that the API sets. */
export function editable(object: { metadata: object }): Record<string, unknown> {
  const { apiVersion, kind, metadata, spec } = object as Record<string, unknown>;
  const editableFields = Object.entries(metadata as Record<string, unknown>).filter(
    ([name]) => name === 'name' || name === 'labels' || name === 'annotations',
  );
  return { apiVersion, kind, metadata: Object.fromEntries(editableFields), spec };
}

/**
 * Adds the version that a write replaces to the text of an object. A text that states a version, or whose metadata is not a
 * block, stays as it is.
 */
export function withResourceVersion(text: string, version: string): string {
  if (/^\s+resourceVersion:/m.test(text)) return text;
  return text.replace(/^metadata:[ \t]*\n([ \t]+)/m, (_, indent: string) => `metadata:\n${indent}resourceVersion: "${version}"\n${indent}`);
}
