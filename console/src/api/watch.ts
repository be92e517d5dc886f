// A watch of one collection: list, then changes from the list's version; resumes after a failure, lists again after 410.
import { ApiError, type Client } from './client';
import { readLines } from './lines';
import { collectionPath, type ObjectsByPlural, type PluralName, type StoredObject } from './objects';

/** Consumer of a watch. */
export interface WatchSink<T> {
  replace(items: T[]): void;
  put(item: T): void;
  remove(item: T): void;
  connected(): void;
  failed(error: ApiError): void;
}

interface ListAnswer<T> {
  metadata: { resourceVersion: string; continue?: string };
  items: T[];
}

interface WatchLine<T> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  object: T & { code?: number; reason?: string; message?: string };
}

/** Number of objects in one answer of a list. */
const PAGE_OBJECTS = 5000;

const RETRY_MILLISECONDS = [250, 500, 1000, 2000];

function pause(milliseconds = 0): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Returns `true` if the collection must be listed again: etcd has compacted the version, or was restored. */
export function mustListAgain(error: ApiError): boolean {
  return error.status === 410;
}

/** Watches a collection until the signal aborts. */
export async function watch<P extends PluralName>(
  client: Client,
  plural: P,
  sink: WatchSink<ObjectsByPlural[P]>,
  signal: AbortSignal,
): Promise<void> {
  const follower = new Follower(client, collectionPath(plural), sink, signal);
  let failures = 0;
  while (!signal.aborted) {
    try {
      await follower.follow(() => {
        failures = 0;
      });
      // The controller ends every stream after some time. A short wait keeps an error from becoming a busy loop.
      await pause(RETRY_MILLISECONDS[0]);
    } catch (error) {
      if (signal.aborted) return;
      const failure = error instanceof ApiError ? error : new ApiError(0, 'Interrupted', 'the connection was interrupted');
      if (mustListAgain(failure)) follower.listAgain();
      sink.failed(failure);
      const wait = RETRY_MILLISECONDS[Math.min(failures, RETRY_MILLISECONDS.length - 1)] ?? 0;
      failures += 1;
      await pause(wait);
    }
  }
}

/** The position of a watch, which survives interruptions. */
class Follower<T extends StoredObject> {
  private version = '';

  constructor(
    private readonly client: Client,
    private readonly path: string,
    private readonly sink: WatchSink<T>,
    private readonly signal: AbortSignal,
  ) {}

  listAgain(): void {
    this.version = '';
  }

  /** Lists if necessary, then follows changes until the stream ends. */
  async follow(onConnected: () => void): Promise<void> {
    if (this.version === '') {
      const { items, version } = await this.list();
      this.version = version;
      this.sink.replace(items);
    }
    // A stream to a controller that is no longer used must not continue, because it may deliver no data indefinitely.
    const stop = new AbortController();
    const abort = () => stop.abort();
    this.signal.addEventListener('abort', abort);
    const forget = this.client.controllers.onMove(abort);
    try {
      await this.read(stop.signal, onConnected);
    } finally {
      forget();
      this.signal.removeEventListener('abort', abort);
      stop.abort();
    }
  }

  /** Lists in pages of one version, so that each answer of a large collection arrives within the time limit. */
  private async list(): Promise<{ items: T[]; version: string }> {
    const items: T[] = [];
    let query = `?limit=${PAGE_OBJECTS}`;
    for (;;) {
      const page = await this.client.get<ListAnswer<T>>(this.path + query);
      for (const item of page.items) items.push(item);
      const token = page.metadata.continue ?? '';
      if (token === '') return { items, version: page.metadata.resourceVersion };
      query = `?limit=${PAGE_OBJECTS}&continue=${encodeURIComponent(token)}`;
    }
  }

  private async read(signal: AbortSignal, onConnected: () => void): Promise<void> {
    const query = `watch=true&allowWatchBookmarks=true&resourceVersion=${encodeURIComponent(this.version)}`;
    const response = await this.client.send(`${this.path}?${query}`, { signal });
    onConnected();
    this.sink.connected();
    if (response.body === null) throw new ApiError(0, 'Interrupted', 'the answer has no content');
    for await (const text of readLines(response.body)) {
      const { type, object } = JSON.parse(text) as WatchLine<T>;
      if (type === 'ERROR') throw new ApiError(object.code ?? 500, object.reason ?? '', object.message ?? '');
      if (type === 'DELETED') this.sink.remove(object);
      else if (type !== 'BOOKMARK') this.sink.put(object);
      this.version = object.metadata.resourceVersion;
    }
  }
}
