// The watch, the controllers, freshness and permissions.
import { expect, it, vi } from 'vitest';
import { ApiError, Client } from '../../src/api/client';
import { Controllers } from '../../src/api/controllers';
import { readLines } from '../../src/api/lines';
import { mustListAgain, watch } from '../../src/api/watch';
import { freshness, type Contact } from '../../src/state/freshness';
import { isAllowed } from '../../src/state/session';

function memory(): Storage {
  const values = new Map<string, string>();
  return {
    getItem: (name: string) => values.get(name) ?? null,
    setItem: (name: string, value: string) => void values.set(name, value),
    removeItem: (name: string) => void values.delete(name),
  } as unknown as Storage;
}

function stream(...parts: string[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      for (const part of parts) controller.enqueue(new TextEncoder().encode(part));
      controller.close();
    },
  });
}

it('reads lines across parts of a stream', async () => {
  const lines: string[] = [];
  for await (const line of readLines(stream('{"a":', '1}\n{"b"', ':"é"}\n', 'rest'))) lines.push(line);
  expect(lines).toEqual(['{"a":1}', '{"b":"é"}']);
});

it('selects the next controller after a failure, and returns to the first one', () => {
  const controllers = new Controllers('https://c1', memory());
  controllers.moveFrom('https://c1');
  expect(controllers.origin).toBe('https://c1');
  const moved = vi.fn();
  controllers.onMove(moved);
  controllers.learn(['https://c1', 'https://c2:7443/', 'unix:/run/x', 'bad']);
  expect(controllers.count).toBe(2);
  controllers.moveFrom('https://c1');
  controllers.moveFrom('https://c1');
  expect(controllers.origin).toBe('https://c2:7443');
  expect(moved).toHaveBeenCalledTimes(1);
  controllers.moveFrom('https://c2:7443');
  expect(controllers.isOwn).toBe(true);
});

it('resumes a watch from its last version, and lists again after 410', async () => {
  const requests: string[] = [];
  const answers = [
    () => Response.json({ metadata: { resourceVersion: '5', continue: 'next' }, items: [{ metadata: { name: 'a', resourceVersion: '4' } }] }),
    () => Response.json({ metadata: { resourceVersion: '5' }, items: [{ metadata: { name: 'b', resourceVersion: '3' } }] }),
    () => new Response(stream('{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}\n')),
    () => new Response(stream('{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"compacted"}}\n')),
    () => Response.json({ metadata: { resourceVersion: '9' }, items: [] }),
  ];
  const stop = new AbortController();
  vi.stubGlobal('fetch', (url: string) => {
    requests.push(url.replace('https://c1', ''));
    const answer = answers.shift();
    if (answer === undefined) {
      stop.abort();
      return Promise.reject(new TypeError('ended'));
    }
    return Promise.resolve(answer());
  });
  const calls: string[] = [];
  const sink = {
    replace: (items: unknown[]) => void calls.push(`replace ${items.length}`),
    put: (item: { metadata: { resourceVersion: string } }) => void calls.push(`put ${item.metadata.resourceVersion}`),
    remove: () => void calls.push('remove'),
    connected: () => void calls.push('connected'),
    failed: (error: ApiError) => void calls.push(`failed ${error.status}`),
  };
  await watch(new Client(memory(), 'https://c1'), 'nodes', sink, stop.signal);
  vi.stubGlobal('fetch', undefined);
  const base = '/apis/hactl.io/v1/nodes';
  const from = (version: string) => `${base}?watch=true&allowWatchBookmarks=true&resourceVersion=${version}`;
  const list = `${base}?limit=5000`;
  expect(requests.slice(0, 6)).toEqual([list, `${list}&continue=next`, from('5'), from('7'), list, from('9')]);
  expect(calls.slice(0, 6)).toEqual(['replace 2', 'connected', 'put 7', 'connected', 'failed 410', 'replace 0']);
});

it('lists again only if the version is gone', () => {
  expect(mustListAgain(new ApiError(410, 'Expired', ''))).toBe(true);
  expect(mustListAgain(new ApiError(503, '', ''))).toBe(false);
});

it('reports stale data with its age and cause', () => {
  const contact: Contact = { now: 100_000, lastAnswer: 99_000, lastError: undefined, interrupted: [], otherController: undefined };
  expect(freshness(contact, undefined).staleSeconds).toBeUndefined();
  const silent = { ...contact, lastAnswer: 80_000, lastError: 'controller does not answer' };
  expect(freshness(silent, undefined)).toMatchObject({ staleSeconds: 20, cause: 'controller does not answer' });
  const interrupted = { ...contact, interrupted: [{ plural: 'nodes', message: 'too many watches' }] };
  expect(freshness(interrupted, 99_500).staleSeconds).toBeUndefined();
  expect(freshness(interrupted, 90_000)).toMatchObject({ staleSeconds: 10, cause: 'no updates of nodes: too many watches' });
});

it('permits what a rule of the API covers', () => {
  const user = { name: 'ada', groups: [], rules: [{ verbs: ['create'], apiGroups: ['hactl.io'], resources: ['operations/Stop'] }] };
  expect(isAllowed(user, { verb: 'create', resource: 'operations/Stop' })).toBe(true);
  expect(isAllowed(user, { verb: 'create', resource: 'operations/Fence' })).toBe(false);
  expect(isAllowed(user, { verb: 'delete', resource: 'operations/Stop' })).toBe(false);
  const admin = { ...user, rules: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }] };
  expect(isAllowed(admin, { verb: 'patch', resource: 'clusters' })).toBe(true);
});

it('returns to its own controller after a check with a time limit', async () => {
  const limits: boolean[] = [];
  vi.stubGlobal('fetch', (_url: string, init: RequestInit) => {
    limits.push(init.signal instanceof AbortSignal);
    return Promise.resolve(new Response('ok'));
  });
  const client = new Client(memory(), 'https://c1');
  client.controllers.learn(['https://c2']);
  client.controllers.moveFrom('https://c1');
  await client.returnToOwn();
  expect([limits, client.controllers.isOwn]).toEqual([[true], true]);
  vi.unstubAllGlobals();
});
