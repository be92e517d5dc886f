// Writes src/api/types.ts from the schemas of the OpenAPI document (docs/schemas). With --check, only compares.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

const schemas = new URL('../../docs/schemas/', import.meta.url);
const output = new URL('../src/api/types.ts', import.meta.url);

/** Returns the TypeScript type of a schema. */
function typeOf(schema, indent) {
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  if (schema['x-kubernetes-int-or-string']) return 'string | number';
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(one, indent)).join(' | ');
  switch (schema.type) {
    case 'string':
      return 'string';
    case 'integer':
    case 'number':
      return 'number';
    case 'boolean':
      return 'boolean';
    case 'array':
      return `Array<${typeOf(schema.items, indent)}>`;
    case 'object':
      if (schema.properties) return objectType(schema, indent);
      if (schema.additionalProperties) return `Record<string, ${typeOf(schema.additionalProperties, indent)}>`;
      return 'Record<string, unknown>';
    default:
      return 'unknown';
  }
}

function objectType(schema, indent) {
  const inner = `${indent}  `;
  const required = new Set(schema.required ?? []);
  const members = Object.entries(schema.properties).map(([name, property]) => {
    const key = /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) ? name : JSON.stringify(name);
    const nullable = property.nullable ? ' | null' : '';
    return `${inner}${key}${required.has(name) ? '' : '?'}: ${typeOf(property, inner)}${nullable};\n`;
  });
  return `{\n${members.join('')}${indent}}`;
}

/** Returns the schemas of a directory with the names of their types. */
function read(directory, nameOf) {
  return readdirSync(directory)
    .filter((name) => name.endsWith('.json'))
    .sort()
    .map((name) => {
      const schema = JSON.parse(readFileSync(new URL(name, directory), 'utf8'));
      return [nameOf(schema, name), schema];
    });
}

const VIEW_NAMES = {
  'auditpage.json': 'AuditPage',
  'balanceplan.json': 'BalancePlan',
  'explanation.json': 'Explanation',
  'overview.json': 'Overview',
  'placementhistory.json': 'PlacementHistory',
  'plan.json': 'Plan',
  'reservationreport.json': 'ReservationReport',
  'timingreport.json': 'TimingReport',
  'usageoverview.json': 'UsageOverview',
};

const types = [
  ...read(schemas, (schema) => schema.title),
  ...read(new URL('views/', schemas), (_, name) => VIEW_NAMES[name]),
];
const text = [
  '// Types of the API, written by scripts/generate-types.mjs from docs/schemas. Do not edit.\n',
  ...types.map(([name, schema]) => `export interface ${name} ${objectType(schema, '')}\n`),
].join('\n');

if (process.argv.includes('--check')) {
  if (readFileSync(output, 'utf8') !== text) {
    console.error('error: src/api/types.ts is out of date\nhint: run "npm run types" in console/');
    process.exit(1);
  }
} else {
  writeFileSync(output, text);
}
