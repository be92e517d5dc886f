// The time of day of the cluster. A simulated cluster has a clock of its own, which may be faster than that of the browser.
let offset = 0;

export function now(): number {
  return Date.now() + offset;
}

/** Sets the time that the clock shows now, in milliseconds since 1970. */
export function setClock(unixMilliseconds: number): void {
  offset = unixMilliseconds - Date.now();
}
