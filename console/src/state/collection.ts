// The live copy of one collection: started by its first reader, stopped some time after its last.
import type { ApiError, Client } from '../api/client';
import type { ObjectsByPlural, PluralName, StoredObject } from '../api/objects';
import { watch } from '../api/watch';
import { Signal } from './signal';

/** Time for which a collection without readers stays live, so that changing the view does not interrupt it. */
const CLOSE_DELAY_MILLISECONDS = 5000;

export interface CollectionState<T> {
  /** Objects by name; undefined until the first list. */
  items: T[] | undefined;
  /** Whether changes arrive now. */
  live: boolean;
  /** Reason why no changes arrive. */
  error: ApiError | undefined;
}

function compareNames(a: StoredObject, b: StoredObject): number {
  return a.metadata.name < b.metadata.name ? -1 : a.metadata.name > b.metadata.name ? 1 : 0;
}

/** A collection that follows the API while it has readers. */
export class Collection<P extends PluralName> {
  readonly state = new Signal<CollectionState<ObjectsByPlural[P]>>({ items: undefined, live: false, error: undefined });
  private readonly byName = new Map<string, ObjectsByPlural[P]>();
  private listed = false;
  private live = false;
  private error: ApiError | undefined;
  private scheduled = false;
  private readers = 0;
  private stop: AbortController | undefined;

  constructor(
    private readonly client: Client,
    private readonly plural: P,
  ) {}

  /** Keeps the collection live until the returned function is called. */
  open(): () => void {
    this.readers += 1;
    if (this.stop === undefined) this.start();
    return () => {
      this.readers -= 1;
      setTimeout(() => {
        if (this.readers === 0) this.close();
      }, CLOSE_DELAY_MILLISECONDS);
    };
  }

  get isOpen(): boolean {
    return this.stop !== undefined;
  }

  private start(): void {
    this.stop = new AbortController();
    const sink = {
      replace: (items: ObjectsByPlural[P][]) => {
        this.byName.clear();
        for (const item of items) this.byName.set(item.metadata.name, item);
        this.listed = true;
        this.schedule();
      },
      put: (item: ObjectsByPlural[P]) => {
        this.byName.set(item.metadata.name, item);
        this.schedule();
      },
      remove: (item: ObjectsByPlural[P]) => {
        this.byName.delete(item.metadata.name);
        this.schedule();
      },
      connected: () => {
        this.live = true;
        this.error = undefined;
        this.schedule();
      },
      failed: (error: ApiError) => {
        this.live = false;
        this.error = error;
        this.schedule();
      },
    };
    void watch(this.client, this.plural, sink, this.stop.signal);
  }

  private close(): void {
    this.stop?.abort();
    this.stop = undefined;
    this.live = false;
    this.listed = false;
    this.schedule();
  }

  /** Publishes all changes of one frame together. */
  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    setTimeout(() => {
      this.scheduled = false;
      const items = this.listed ? [...this.byName.values()].sort(compareNames) : undefined;
      this.state.set({ items, live: this.live, error: this.error });
    }, 16);
  }
}
