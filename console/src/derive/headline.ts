// The first sentence of the overview, composed from facts that the server has decided.
import { conditionOf, type Overview, type ReservationReport, type Resource } from '../api/objects';

export type Tone = 'ok' | 'warn' | 'bad' | 'idle';

export interface Headline {
  tone: Tone;
  sentences: string[];
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

/** Returns `true` if the leader reports that the resource is in its requested state. */
export function isReady(resource: Resource): boolean {
  return conditionOf(resource, 'Ready')?.status === 'True';
}

function servicesSentence(resources: Resource[]): string {
  const started = resources.filter((resource) => (resource.spec?.state ?? 'Started') === 'Started');
  const running = started.filter(isReady).length;
  if (resources.length === 0) return 'No services are declared.';
  if (started.length === 0) return `${count(resources.length, 'service')} declared, none is to run.`;
  if (running < started.length) return `${running} of ${count(started.length, 'service')} run.`;
  return started.length === 1 ? 'The only service runs.' : `All ${started.length} services run.`;
}

function capacitySentence(report: ReservationReport | undefined): string | undefined {
  if (report === undefined) return undefined;
  if (report.verdict === 'Survives') {
    return (report.failureTolerance ?? 1) > 1 ? `Any ${report.failureTolerance} nodes may fail.` : 'Any one node may fail.';
  }
  const fatal = report.items.filter((item) => item.verdict === 'Fails');
  const [first] = fatal;
  if (first === undefined) return 'Whether a node may fail is unknown.';
  if (fatal.length === 1) return `${first.what[0]?.toUpperCase()}${first.what.slice(1)} may not fail.`;
  return `${fatal.length} nodes may not fail.`;
}

function watchdogSentence(overview: Overview): string | undefined {
  const nodes = overview.nodes.filter((node) => node.state !== 'Gone');
  if (nodes.length === 0) return undefined;
  const armed = nodes.filter((node) => node.lease && node.watchdog?.armed === true).length;
  return `Watchdogs armed on ${armed} of ${count(nodes.length, 'node')}.`;
}

function tone(overview: Overview): Tone {
  if (!overview.store.quorum || overview.leader == null) return 'bad';
  if (overview.problems.some((problem) => problem.severity === 'Failed')) return 'bad';
  return overview.problems.length > 0 ? 'warn' : 'ok';
}

/** Composes the sentence. Problems of the control plane come first, because the other facts then may be old. */
export function headline(
  overview: Overview,
  resources: Resource[],
  report: ReservationReport | undefined,
): Headline {
  const first = !overview.store.quorum
    ? 'etcd has no quorum: services run unchanged, but cannot be recovered.'
    : overview.leader == null
      ? 'No controller is leader: services run unchanged, but cannot be recovered.'
      : undefined;
  const disarmed = overview.arming === 'Armed' || overview.arming === '' ? undefined : `The cluster is ${overview.arming.toLowerCase()}.`;
  const sentences = [
    first,
    disarmed,
    overview.store.quorum ? servicesSentence(resources) : undefined,
    overview.store.quorum ? capacitySentence(report) : undefined,
    watchdogSentence(overview),
  ];
  return { tone: tone(overview), sentences: sentences.filter((one): one is string => one !== undefined) };
}
