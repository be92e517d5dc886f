// The first sentence of the overview.
import { describe, expect, it } from 'vitest';
import type { Overview, ReservationReport, Resource } from '../../src/api/objects';
import { headline } from '../../src/derive/headline';

function resource(name: string, ready: 'True' | 'False', state: 'Started' | 'Stopped' = 'Started'): Resource {
  return {
    apiVersion: 'hactl.io/v1',
    kind: 'Resource',
    metadata: { name, uid: name, resourceVersion: '1', creationTimestamp: '' },
    spec: { state },
    status: { conditions: [{ type: 'Ready', status: ready, reason: 'Running' }] },
  };
}

function cluster(changes: Partial<Overview> = {}): Overview {
  const node = (name: string, armed: boolean, services: number) => ({
    name,
    state: 'Online' as const,
    agent: '',
    mode: '',
    registration: 1,
    registrationState: 'Open',
    lease: true,
    services,
    reason: 'NodeReady' as const,
    watchdog: { kind: 'Kernel', identity: '', device: '', timeoutSeconds: 5, armed, dynamicTimeout: true, fdStorePersistent: true },
  });
  return {
    cluster: 'c',
    answeredBy: 'c1',
    version: '',
    store: { quorum: true, revision: 1, members: [] },
    leader: { id: 'c1', url: '', term: 1, since: '' },
    controllers: [],
    nodes: [node('node1', true, 1), node('node2', false, 0)],
    services: {},
    arming: 'Armed',
    waitingFor: [],
    problems: [],
    checks: [],
    recentFences: [],
    ...changes,
  };
}

function report(verdict: 'Survives' | 'Fails', nodes: string[] = []): ReservationReport {
  return {
    cluster: 'c',
    basis: 'Requests',
    countStopped: true,
    failures: 1,
    verdict,
    failureTolerance: verdict === 'Survives' ? 1 : 0,
    checked: 2,
    items: nodes.map((name) => ({ what: `node ${name}`, nodes: [name], verdict: 'Fails', because: '' })),
  };
}

const text = (overview: Overview, resources: Resource[], one?: ReservationReport) =>
  headline(overview, resources, one)
    .sentences.map((sentence) => sentence.text)
    .join(' ');

describe('headline', () => {
  it('states that everything runs', () => {
    const resources = [resource('a', 'True'), resource('b', 'True'), resource('c', 'True', 'Stopped')];
    expect(text(cluster(), resources, report('Survives'))).toBe(
      'All 2 services run. Any one node may fail. Watchdogs armed on 1 of 2 nodes.',
    );
  });

  it('names the node whose failure has no remedy', () => {
    expect(text(cluster(), [resource('a', 'True')], report('Fails', ['node1']))).toContain(
      'If node1 fails, some services cannot run.',
    );
  });

  it('counts the services that do not run', () => {
    const result = headline(cluster(), [resource('a', 'True'), resource('b', 'False')], undefined);
    expect(result.sentences[0]).toEqual({ text: '1 of 2 services run.', tone: 'bad' });
  });

  it('reports a lost control plane first and makes no statement from old data', () => {
    const lost = cluster({ store: { quorum: false, revision: 0, members: [] }, nodes: [] });
    expect(headline(lost, [resource('a', 'True')], report('Survives'))).toEqual({
      tone: 'bad',
      sentences: [{ text: 'etcd has no quorum: services run unchanged, but cannot be recovered.', tone: 'bad' }],
    });
    const { leader: _, ...leaderless } = cluster();
    expect(text(leaderless, [])).toMatch(/^No controller is leader/);
  });

  it('takes its tone from the problems that the server reports', () => {
    const problem = { about: 'node/node1', reason: 'WatchdogMissing' as const, message: '' };
    expect(headline(cluster(), [], undefined).tone).toBe('ok');
    expect(headline(cluster({ problems: [{ ...problem, severity: 'Degraded' }] }), [], undefined).tone).toBe('warn');
    expect(headline(cluster({ problems: [{ ...problem, severity: 'Failed' }] }), [], undefined).tone).toBe('bad');
  });
});
