// The addresses of the controllers: the one that serves the page first, then those that the cluster names.
const CONTROLLERS_STORAGE_KEY = 'hactl.controllers';

/** Returns the origin of a URL; undefined if it has none that a page can use. */
export function originOf(url: string): string | undefined {
  try {
    const parsed = new URL(url);
    return parsed.protocol === 'https:' || parsed.protocol === 'http:' ? parsed.origin : undefined;
  } catch {
    return undefined;
  }
}

/** Known controllers, and the one that answers requests now. */
export class Controllers {
  private origins: string[];
  private current = 0;
  private readonly listeners = new Set<() => void>();

  constructor(
    own: string,
    private readonly storage: Pick<Storage, 'getItem' | 'setItem'>,
  ) {
    const stored = (storage.getItem(CONTROLLERS_STORAGE_KEY) ?? '').split(' ').filter((origin) => origin !== '');
    this.origins = [...new Set([own, ...stored])];
  }

  /** Returns the origin that requests use. */
  get origin(): string {
    return this.origins[this.current] ?? '';
  }

  /** Returns `true` if requests go to the controller that serves the page. */
  get isOwn(): boolean {
    return this.current === 0;
  }

  /** Returns the origin of the controller that serves the page. */
  get own(): string {
    return this.origins[0] ?? '';
  }

  get count(): number {
    return this.origins.length;
  }

  /** Adds the controllers that the cluster names. */
  learn(urls: string[]): void {
    const origins = urls.map(originOf).filter((origin): origin is string => origin !== undefined);
    const current = this.origin;
    const [own] = this.origins;
    const nextOrigins = [...new Set([own ?? '', ...origins])];
    if (!nextOrigins.includes(current)) nextOrigins.push(current);
    if (nextOrigins.join(' ') === this.origins.join(' ')) return;
    this.origins = nextOrigins;
    this.current = nextOrigins.indexOf(current);
    this.storage.setItem(CONTROLLERS_STORAGE_KEY, nextOrigins.slice(1).join(' '));
  }

  /** Selects the next controller if requests still use the one that failed. */
  moveFrom(failed: string): void {
    if (this.origin === failed) this.select((this.current + 1) % this.origins.length);
  }

  /** Selects the controller that serves the page. */
  returnToOwn(): void {
    this.select(0);
  }

  private select(index: number): void {
    if (index === this.current) return;
    this.current = index;
    for (const listener of [...this.listeners]) listener();
  }

  /** Calls a function whenever another controller is selected. Returns the function that ends this. */
  onMove(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
