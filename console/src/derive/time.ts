// Times and durations as text for people.

/** Returns a duration, such as `13 s`, `4 min`, `3 h`, `2 d`. */
export function durationText(seconds: number): string {
  const wholeSeconds = Math.max(0, Math.floor(seconds));
  if (wholeSeconds < 120) return `${wholeSeconds} s`;
  if (wholeSeconds < 120 * 60) return `${Math.floor(wholeSeconds / 60)} min`;
  if (wholeSeconds < 48 * 3600) return `${Math.floor(wholeSeconds / 3600)} h`;
  return `${Math.floor(wholeSeconds / 86400)} d`;
}

/** Returns the seconds since a timestamp; undefined if there is none. */
export function secondsSince(timestamp: string | null | undefined, now: number): number | undefined {
  if (timestamp === null || timestamp === undefined) return undefined;
  const time = Date.parse(timestamp);
  return Number.isNaN(time) ? undefined : Math.max(0, (now - time) / 1000);
}

/** Returns seconds with one digit after the point. */
export function secondsText(value: number | null | undefined): string {
  return value === null || value === undefined ? 'unknown' : `${Number(value.toFixed(1))} s`;
}
