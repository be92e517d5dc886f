// An answer of the API that is not an object: read again at an interval while it has readers, and soon after a change.
import { ApiError, type Client } from '../api/client';
import { Signal } from './signal';

export interface PolledState<T> {
  value: T | undefined;
  /** Time of the last answer, in milliseconds of the page's clock. */
  at: number;
  /** Error of the last request; undefined if it succeeded. */
  error: ApiError | undefined;
}

/** An answer that is read repeatedly. */
export class Polled<T> {
  readonly state = new Signal<PolledState<T>>({ value: undefined, at: 0, error: undefined });
  private readers = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private requested = false;
  private busy = false;
  private lastStart = 0;

  constructor(
    private readonly client: Client,
    private readonly path: string,
    private readonly intervalMilliseconds: number,
    private readonly leastMilliseconds: number,
    /** Longest time for one answer. After it, the page uses another controller. */
    private readonly timeoutMilliseconds?: number,
  ) {}

  open(): () => void {
    this.readers += 1;
    if (this.readers === 1) void this.read();
    return () => {
      this.readers -= 1;
      if (this.readers === 0) clearTimeout(this.timer);
    };
  }

  /** Requests a new answer, but not more often than the least time allows. */
  refresh(): void {
    if (this.readers === 0) return;
    if (this.busy) {
      this.requested = true;
      return;
    }
    this.plan(Math.max(0, this.lastStart + this.leastMilliseconds - performance.now()));
  }

  private plan(milliseconds: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.read(), milliseconds);
  }

  private async read(): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    this.requested = false;
    this.lastStart = performance.now();
    try {
      const value = await this.client.get<T>(this.path, this.timeoutMilliseconds);
      this.state.set({ value, at: performance.now(), error: undefined });
    } catch (error) {
      const failure = error instanceof ApiError ? error : new ApiError(0, 'Unreachable', String(error));
      this.state.set({ ...this.state.value, error: failure });
    }
    this.busy = false;
    if (this.readers === 0) return;
    this.plan(this.requested ? this.leastMilliseconds : this.intervalMilliseconds);
  }
}
