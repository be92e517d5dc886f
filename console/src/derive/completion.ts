// Completion in the YAML editor: the fields and values that the schema allows at the caret.
import type { Schema } from './schema';

export interface Suggestion {
  /** Field or value that is shown. */
  label: string;
  description: string;
  /** Text that replaces the part before the caret. */
  text: string;
}

export interface Completion {
  /** Offset of the part before the caret that a suggestion replaces. */
  from: number;
  suggestions: Suggestion[];
}

/** Marks the items of a list in a path. */
const ITEM = '[]';

/** Largest number of suggestions. */
const MAX_SUGGESTIONS = 12;

interface Line {
  /** Columns of the dashes before the key. */
  dashes: number[];
  /** Column of the key. */
  column: number;
  key: string;
}

/** Returns the position and the key of a line; undefined for an empty line, a comment, or text without a key. */
function parse(text: string): Line | undefined {
  const match = /^(\s*)((?:-\s+|-$)*)(?:"([^"]*)"|([^\s#:"][^:]*))?\s*(?::(?:\s|$)|$)/.exec(text);
  if (match === null) return undefined;
  const [, indent = '', dashText = ''] = match;
  const key = match[3] ?? match[4] ?? '';
  if (key === '' && dashText === '') return undefined;
  const dashes = [...dashText.matchAll(/-/g)].map((dash) => indent.length + (dash.index ?? 0));
  return { dashes, column: indent.length + dashText.length, key: /:(\s|$)/.test(text) ? key : '' };
}

/** Returns the path of the mapping that contains a line, and the fields that the mapping already has. */
function enclosingPath(lines: string[], index: number, current: Line): { path: string[]; siblings: Set<string> } {
  const path: string[] = [];
  const siblings = new Set<string>();
  let limit = current.column;
  let isOwnLevel = true;
  // A list item belongs to a key at the column of its dash, or before it.
  const enterItems = (dashes: number[]) => {
    for (const dash of [...dashes].reverse()) {
      path.unshift(ITEM);
      limit = dash + 1;
      isOwnLevel = false;
    }
  };
  enterItems(current.dashes);
  for (let row = index - 1; row >= 0; row -= 1) {
    const line = parse(lines[row] ?? '');
    if (line === undefined) continue;
    if (isOwnLevel && line.column === current.column) {
      if (line.key !== '') siblings.add(line.key);
      enterItems(line.dashes);
      continue;
    }
    if (line.column < limit && line.key !== '') {
      path.unshift(line.key);
      limit = line.column;
      isOwnLevel = false;
      enterItems(line.dashes);
    }
  }
  for (let row = index + 1; row < lines.length; row += 1) {
    const line = parse(lines[row] ?? '');
    if (line === undefined) continue;
    if (line.column < current.column || line.dashes.length > 0) break;
    if (line.column === current.column && line.key !== '') siblings.add(line.key);
  }
  return { path, siblings };
}

/** Returns the schemas at a path; several if alternatives exist. */
function schemasAt(schema: Schema, path: string[]): Schema[] {
  let nodes = alternatives(schema);
  for (const part of path) {
    nodes = nodes.flatMap((node) => {
      if (part === ITEM) return node.items === undefined ? [] : alternatives(node.items);
      const property = node.properties?.[part];
      if (property !== undefined) return alternatives(property);
      return typeof node.additionalProperties === 'object' ? alternatives(node.additionalProperties) : [];
    });
  }
  return nodes;
}

function alternatives(schema: Schema): Schema[] {
  return schema.anyOf === undefined ? [schema] : [schema, ...schema.anyOf.flatMap(alternatives)];
}

function rank<T extends { label: string }>(entries: T[], typed: string): T[] {
  const lower = typed.toLowerCase();
  const matching = entries.filter((entry) => entry.label.toLowerCase().includes(lower) && entry.label !== typed);
  const begins = (entry: T) => (entry.label.toLowerCase().startsWith(lower) ? 0 : 1);
  return matching.sort((a, b) => begins(a) - begins(b)).slice(0, MAX_SUGGESTIONS);
}

function firstSentence(text: string | undefined): string {
  return /^.*?[.:](?=\s|$)/.exec(text ?? '')?.[0] ?? text ?? '';
}

/** Returns the text of a new field: a scalar continues on the line, a mapping or a list on the next one. */
function fieldText(name: string, schema: Schema, column: number): string {
  const indent = ' '.repeat(column);
  const kinds = alternatives(schema);
  if (kinds.some((kind) => kind.type === 'array')) return `${name}:\n${indent}- `;
  const isMapping = kinds.some((kind) => kind.properties !== undefined || typeof kind.additionalProperties === 'object');
  return isMapping ? `${name}:\n${indent}  ` : `${name}: `;
}

/** Returns the completions at an offset of the text; undefined if there is none. */
export function complete(text: string, offset: number, schema: Schema): Completion | undefined {
  const lines = text.split('\n');
  const before = text.slice(0, offset).split('\n');
  const index = before.length - 1;
  const start = before[index] ?? '';
  const rest = (lines[index] ?? '').slice(start.length);
  if (/\S/.test(rest)) return undefined;
  const value = /^\s*(?:- +)*("[^"]*"|[^\s:#]+):\s+(\S*)$/.exec(start);
  if (value !== null) {
    const line = parse(start);
    if (line === undefined) return undefined;
    const { path } = enclosingPath(lines, index, line);
    return valueSuggestions(schemasAt(schema, [...path, line.key]), value[2] ?? '', offset);
  }
  const item = /^(\s*(?:- +)*)([\w.-]*)$/.exec(start);
  if (item === null) return undefined;
  const prefix = item[1] ?? '';
  const typed = item[2] ?? '';
  const dashes = [...prefix.matchAll(/-/g)].map((dash) => dash.index ?? 0);
  const { path, siblings } = enclosingPath(lines, index, { dashes, column: prefix.length, key: '' });
  const nodes = schemasAt(schema, path);
  const fields = nodes.flatMap((node) => Object.entries(node.properties ?? {}));
  const isTop = path.length === 0;
  const entries = fields
    .filter(([name]) => !siblings.has(name) && !(isTop && name === 'status'))
    .map(([name, property]) => ({ label: name, description: firstSentence(property.description), text: fieldText(name, property, prefix.length) }));
  const found = rank(entries, typed);
  if (found.length > 0) return { from: offset - typed.length, suggestions: found };
  return dashes.length > 0 ? valueSuggestions(nodes, typed, offset) : undefined;
}

function valueSuggestions(nodes: Schema[], typed: string, offset: number): Completion | undefined {
  const choices = nodes.flatMap((node) => node.enum ?? (node.type === 'boolean' ? [true, false] : []));
  const description = firstSentence(nodes[0]?.description);
  const entries = [...new Set(choices.map(String))].map((label) => ({ label, description, text: label }));
  const suggestions = rank(entries, typed);
  return suggestions.length === 0 ? undefined : { from: offset - typed.length, suggestions };
}
