// Names as hactl prints them: the type of a resource follows its driver.
import type { Resource } from '../api/objects';

const TYPES: Record<string, string> = { libvirt: 'vm', podman: 'ct', lxc: 'ct', systemd: 'unit' };

/** Returns the driver of a resource. */
export function driverOf(resource: Resource): string {
  const driver = (resource.spec?.driver ?? {}) as Record<string, unknown>;
  return Object.keys(driver).find((name) => driver[name] !== undefined && driver[name] !== null) ?? '';
}

/** Returns the type, such as `vm` in `vm:100`. */
export function typeOf(resource: Resource): string {
  const driver = driverOf(resource);
  if (driver === 'simulated') return resource.spec?.driver?.simulated?.type ?? 'sim';
  if (driver === 'external') return resource.spec?.driver?.external?.name ?? '';
  return TYPES[driver] ?? driver;
}
