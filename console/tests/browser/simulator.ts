// The interactive simulator of a test: a process with a directory of its own.
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { programs } from './sandbox';

export interface RunningSimulation {
  /** Address of the console. */
  url: string;
  /** Ends the process, and starts it again with the same directory. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

async function start(directory: string): Promise<{ process: ChildProcess; url: string }> {
  const words = ['simulate', '--serve', directory, '--listen', '127.0.0.1:0', '--no-browser'];
  const process = spawn(`${programs}/hactl`, words, { stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of createInterface({ input: process.stdout })) {
    const url = /http:\S+/.exec(line)?.[0];
    if (url !== undefined) return { process, url };
  }
  throw new Error('hactl simulate --serve ended without an address');
}

async function end(process: ChildProcess): Promise<void> {
  const ended = once(process, 'exit');
  process.kill('SIGINT');
  const [status] = (await ended) as [number | null];
  if (status !== 0) throw new Error(`hactl simulate --serve ended with status ${status}`);
}

export async function startSimulation(): Promise<RunningSimulation> {
  const directory = mkdtempSync(join(tmpdir(), 'hactl-simulation-'));
  let started = await start(directory);
  return {
    get url() {
      return started.url;
    },
    restart: async () => {
      await end(started.process);
      started = await start(directory);
    },
    stop: async () => {
      await end(started.process);
      rmSync(directory, { recursive: true });
    },
  };
}

export interface Summary {
  services: Record<string, { running: string[] } | undefined>;
  expect: { check: string; ok: boolean }[];
  violations: unknown[];
}

/** Runs a scenario file, and returns its summary. */
export function replay(file: string): Summary {
  return JSON.parse(execFileSync(`${programs}/hactl`, ['simulate', file, '-o', 'json'], { encoding: 'utf8' })) as Summary;
}
