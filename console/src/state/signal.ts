// A value with subscribers, and the hook that renders again when the value changes.
import { useEffect, useReducer } from 'preact/hooks';

/** A value that components can follow. */
export class Signal<T> {
  private readonly listeners = new Set<() => void>();

  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }

  set(value: T): void {
    if (Object.is(value, this.current)) return;
    this.current = value;
    this.notify();
  }

  /** Notifies the subscribers of a change inside the value. */
  notify(): void {
    for (const listener of [...this.listeners]) listener();
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** Returns the value, and renders the component again after each change. */
export function useSignal<T>(signal: Signal<T>): T {
  const [, render] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    render(undefined as never);
    return signal.subscribe(() => render(undefined as never));
  }, [signal]);
  return signal.value;
}
