// The schemas of the kinds, from the OpenAPI document of the API: names, descriptions and bounds of fields.
import { useEffect } from 'preact/hooks';
import { client } from '../api/client';
import type { Schema } from '../derive/schema';
import { Signal, useSignal } from './signal';

const PREFIX = 'io.hactl.v1.';
const schemas = new Signal<Record<string, Schema>>({});
let isRequested = false;

async function readSchemas(): Promise<void> {
  if (isRequested) return;
  isRequested = true;
  try {
    const document = await client.get<{ components: { schemas: Record<string, Schema> } }>('/openapi/v3/apis/hactl.io/v1');
    schemas.set(document.components.schemas);
  } catch {
    // Without schemas, forms and the editor work without descriptions. The next view reads them again.
    isRequested = false;
  }
}

/** Returns the schema of a kind; undefined until it is known. */
export function useSchema(kind: string): Schema | undefined {
  useEffect(() => void readSchemas(), []);
  return useSignal(schemas)[`${PREFIX}${kind}`];
}
