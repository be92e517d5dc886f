// The cluster of the tests: starts the sandbox, breaks its machines, runs hactl, and creates tokens.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../..', import.meta.url));
export const programs = resolve(root, process.env['CARGO_TARGET_DIR'] ?? 'target', 'debug');

/** Directory of the cluster. HACTL_CONSOLE_SANDBOX names a cluster that already runs, for work on the tests. */
export const directory = process.env['HACTL_CONSOLE_SANDBOX'] ?? resolve(root, '.cache/console-sandbox');
export const isOwn = process.env['HACTL_CONSOLE_SANDBOX'] === undefined;

export const ROLES = ['viewer', 'operator', 'editor', 'admin'] as const;
export type Role = (typeof ROLES)[number];

function run(program: string, ...words: string[]): string {
  return execFileSync(program, words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

export function hactl(...words: string[]): string {
  return run(`${directory}/hactl`, ...words);
}

/** Breaks or repairs a machine, as `./dev/node` does. */
export function machine(name: string, ...action: string[]): void {
  run(`${programs}/ha-sandbox`, 'machine', '--folder', directory, name, ...action);
}

export function startSandbox(): void {
  mkdirSync(directory, { recursive: true });
  run(`${programs}/ha-sandbox`, 'up', '--folder', directory, '--profile', 'Fast');
}

export function removeSandbox(): void {
  run(`${programs}/ha-sandbox`, 'down', '--folder', directory);
}

/** Creates a token of each role. */
export function createTokens(): void {
  for (const role of ROLES) {
    const file = `${directory}/${role}.token`;
    if (existsSync(file)) continue;
    writeFileSync(file, run(`${programs}/hactl`, 'token', 'create', `test-${role}`, '--role', role, '--file', `${directory}/tokens.yaml`));
  }
}

export function token(role: Role): string {
  return readFileSync(`${directory}/${role}.token`, 'utf8').trim();
}

/** Returns the addresses of the controllers; the page of the tests comes from the first one. */
export function controllers(): { name: string; url: string }[] {
  const listed = run(`${programs}/ha-sandbox`, 'machine', '--folder', directory);
  return listed
    .split('\n')
    .map((line) => line.split(/\s+/))
    .filter(([name]) => name?.startsWith('controller') === true)
    .map(([name = '', , address = '']) => ({ name, url: `https://${address}:7443` }));
}

/** Returns the certificate of the administrator, with its key. */
export function certificate(): { certPath: string; keyPath: string } {
  return { certPath: `${directory}/tls/admin.pem`, keyPath: `${directory}/tls/admin.key` };
}
