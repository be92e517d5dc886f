// A server with the built console and the answers of a large cluster, to measure the page alone.
import { readFileSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';

const dist = fileURLToPath(new URL('../../dist/', import.meta.url));
const TYPES: Record<string, string> = { html: 'text/html', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };

const ready = (message: string) => [{ type: 'Ready', status: 'True', reason: 'Running', message }];

export class LargeCluster {
  private readonly server: Server;
  private readonly watches: { plural: string; response: ServerResponse }[] = [];
  private readonly nodes: string[];
  private readonly nodeOf: string[];
  private version = 1;

  /** A cluster with this number of node groups; 0 for nodes without a group. */
  constructor(
    nodes: number,
    services: number,
    private readonly groups = 0,
  ) {
    this.nodes = Array.from({ length: nodes }, (_, index) => `node${index + 1}`);
    this.nodeOf = Array.from({ length: services }, (_, index) => this.nodes[index % nodes] ?? '');
    this.server = createServer((request, response) => this.answer(request.url ?? '/', response));
  }

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }

  /** Moves a service, and sends the change to all watches. */
  move(service: number, node: string): void {
    this.nodeOf[service] = node;
    this.version += 1;
    const line = `${JSON.stringify({ type: 'MODIFIED', object: this.resource(service) })}\n`;
    for (const watch of this.watches) if (watch.plural === 'resources') watch.response.write(line);
  }

  private metadata(name: string) {
    return { name, uid: name, resourceVersion: `${this.version}`, creationTimestamp: '2026-01-01T00:00:00Z', generation: 1 };
  }

  private resource(index: number) {
    const node = this.nodeOf[index];
    return {
      kind: 'Resource',
      metadata: this.metadata(`service${index + 1}`),
      spec: { state: 'Started', driver: { systemd: {} }, requests: { memory: '1Gi' } },
      status: { state: 'Started', node, running: true, conditions: ready(`Running on ${node}`) },
    };
  }

  private list(plural: string): unknown[] {
    if (plural === 'resources') return this.nodeOf.map((_, index) => this.resource(index));
    if (plural === 'nodes') {
      return this.nodes.map((name, index) => ({
        kind: 'Node',
        metadata: this.metadata(name),
        spec: this.groups === 0 ? {} : { nodeGroup: `rack${(index % this.groups) + 1}` },
        status: { state: 'Online' },
      }));
    }
    return [];
  }

  private overview() {
    const watchdog = { kind: 'Kernel', identity: 'iTCO_wdt', device: '/dev/watchdog', timeoutSeconds: 5, armed: true, dynamicTimeout: true, fdStorePersistent: true };
    const node = { state: 'Online', agent: 'Active', mode: 'Active', registration: 1, registrationState: 'Open', lease: true, watchdog, silentSeconds: 0.4, services: 20, reason: 'NodeReady' };
    return {
      cluster: 'large',
      answeredBy: 'c1',
      version: '0',
      store: { quorum: true, revision: this.version, members: [] },
      leader: { id: 'c1', url: '', term: 1, since: '2026-01-01T00:00:00Z' },
      controllers: [],
      nodes: this.nodes.map((name) => ({ ...node, name })),
      services: { Started: this.nodeOf.length },
      arming: 'Armed',
      waitingFor: [],
      problems: [],
      checks: [],
      recentFences: [],
    };
  }

  private usage() {
    return {
      nodes: this.nodes.map((name) => ({ name, capacity: { cpu: '32', memory: '64Gi' }, allocated: { memory: '20Gi' } })),
      resources: this.nodeOf.map((node, index) => ({ name: `service${index + 1}`, type: 'unit', node, requests: { memory: '1Gi' } })),
    };
  }

  private answer(url: string, response: ServerResponse): void {
    const { pathname, searchParams } = new URL(url, 'http://x');
    const json = (value: unknown) => response.setHeader('Content-Type', 'application/json').end(JSON.stringify(value));
    if (pathname.startsWith('/console/')) {
      const name = pathname.slice('/console/'.length) || 'index.html';
      response.setHeader('Content-Type', TYPES[name.split('.').pop() ?? ''] ?? 'text/plain');
      response.end(readFileSync(dist + name));
      return;
    }
    const last = pathname.split('/').pop() ?? '';
    if (searchParams.get('watch') === 'true') {
      response.setHeader('Content-Type', 'application/json').write('');
      response.flushHeaders();
      this.watches.push({ plural: last, response });
      return;
    }
    if (last === 'selfsubjectreviews') json({ status: { userInfo: { username: 'test', groups: [] } } });
    else if (last === 'selfsubjectrulesreviews') json({ status: { resourceRules: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }] } });
    else if (last === 'status') json(this.overview());
    else if (last === 'usage') json(this.usage());
    else if (last === 'reservation') json({ verdict: 'Survives', failureTolerance: 1, items: [] });
    else {
      const all = this.list(last);
      const first = Number(searchParams.get('continue') ?? 0);
      const end = first + Number(searchParams.get('limit') ?? all.length);
      const metadata = { resourceVersion: `${this.version}`, ...(end < all.length ? { continue: `${end}` } : {}) };
      json({ metadata, items: all.slice(first, end) });
    }
  }
}
