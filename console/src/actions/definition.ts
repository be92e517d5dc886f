// Writes an edited definition, unless another user changed it since it was read.
import { ApiError, client, type Answer, type Client } from '../api/client';
import { collectionPath, objectPath, type PluralName, type StoredObject } from '../api/objects';
import { editable, toYaml, withResourceVersion } from '../derive/yaml';

/** Number of attempts, if writes of the status come between reading and writing. */
const ATTEMPTS = 5;

interface Definition {
  plural: PluralName;
  /** Edited text. */
  text: string;
  /** Name and text of the object as it was read; undefined for a new object. */
  base: { name: string; text: string } | undefined;
  /** Checks on the server without writing. */
  isDryRun: boolean;
}

/** Writes a definition. A change of the status alone, which is frequent, does not prevent this. */
export async function writeDefinition({ plural, text, base, isDryRun }: Definition, api: Client = client): Promise<Answer<StoredObject>> {
  const query = isDryRun ? '?dryRun=All&fieldManager=hactl-console' : '?fieldManager=hactl-console';
  if (base === undefined) return api.write('POST', collectionPath(plural) + query, text, 'application/yaml');
  const path = objectPath(plural, base.name);
  for (let attempt = 1; ; attempt += 1) {
    const stored = await api.get<StoredObject>(path);
    if (toYaml(editable(stored)) !== base.text) {
      throw new ApiError(409, 'Conflict', 'The object has changed since this text was read: read it again, then repeat the edit');
    }
    try {
      return await api.write('PUT', path + query, withResourceVersion(text, stored.metadata.resourceVersion), 'application/yaml');
    } catch (error) {
      if (!(error instanceof ApiError && error.reason === 'Conflict') || attempt === ATTEMPTS) throw error;
    }
  }
}
