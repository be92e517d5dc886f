// Times and durations as text for people.

/** Returns a duration, such as `13 s`, `4 min`, `3 h`, `2 d`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole} s`;
  if (whole < 120 * 60) return `${Math.floor(whole / 60)} min`;
  if (whole < 48 * 3600) return `${Math.floor(whole / 3600)} h`;
  return `${Math.floor(whole / 86400)} d`;
}

/** Returns the seconds since a timestamp; undefined if there is none. */
export function secondsSince(timestamp: string | null | undefined, now: number): number | undefined {
  if (timestamp === null || timestamp === undefined) return undefined;
  const then = Date.parse(timestamp);
  return Number.isNaN(then) ? undefined : Math.max(0, (now - then) / 1000);
}

/** Returns seconds with one digit after the point. */
export function seconds(value: number | null | undefined): string {
  return value === null || value === undefined ? 'unknown' : `${Number(value.toFixed(1))} s`;
}
