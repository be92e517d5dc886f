// Quantities of Kubernetes (`500m`, `2Gi`) as numbers, and numbers as text for people.
const SUFFIXES: Record<string, number> = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  '': 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
};

/** Returns the number of a quantity; undefined if there is none. */
export function parseQuantity(value: string | number | null | undefined): number | undefined {
  if (value === null || value === undefined) return undefined;
  if (typeof value === 'number') return value;
  const match = /^([0-9.]+(?:e[+-]?[0-9]+)?)([A-Za-z]*)$/i.exec(value.trim());
  const factor = SUFFIXES[match?.[2] ?? '?'];
  return match === null || factor === undefined ? undefined : Number(match[1]) * factor;
}

/** Returns a number of bytes as text, such as `1.5 GiB`. */
export function bytesText(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let scaled = value;
  let unit = 0;
  while (scaled >= 1024 && unit < units.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  const digits = scaled >= 100 || unit === 0 ? 0 : scaled >= 10 ? 1 : 2;
  return `${Number(scaled.toFixed(digits))} ${units[unit]}`;
}

/** Returns a number of cores as text, such as `1.5 cores`. */
export function coresText(value: number): string {
  const rounded = Number(value.toFixed(2));
  return `${rounded} ${rounded === 1 ? 'core' : 'cores'}`;
}
