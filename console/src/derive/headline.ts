// The first sentence of the overview, composed from facts that the server has decided.
import { conditionOf, type Overview, type ReservationReport, type Resource } from '../api/objects';

export type Tone = 'ok' | 'warn' | 'bad' | 'idle';

export interface Headline {
  tone: Tone;
  sentences: Sentence[];
}

export interface Sentence {
  text: string;
  tone: Tone;
}

function countWithNoun(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

/** Returns `true` if the leader reports that the resource is in its requested state. */
export function isReady(resource: Resource): boolean {
  return conditionOf(resource, 'Ready')?.status === 'True';
}

function servicesSentence(resources: Resource[]): Sentence {
  const started = resources.filter((resource) => (resource.spec?.state ?? 'Started') === 'Started');
  const running = started.filter(isReady).length;
  if (started.length === 0) {
    const text = resources.length === 0 ? 'No services are declared.' : 'Every service is stopped as requested.';
    return { text, tone: 'idle' };
  }
  if (running < started.length) return { text: `${running} of ${countWithNoun(started.length, 'service')} run.`, tone: 'bad' };
  return { text: started.length === 1 ? 'The only service runs.' : `All ${started.length} services run.`, tone: 'ok' };
}

function capacitySentence(report: ReservationReport | undefined): Sentence | undefined {
  if (report === undefined) return undefined;
  if (report.verdict === 'Survives') {
    const tolerance = report.failureTolerance ?? 1;
    return { text: tolerance > 1 ? `Any ${tolerance} nodes may fail.` : 'Any one node may fail.', tone: 'ok' };
  }
  const fatal = report.items.filter((item) => item.verdict === 'Fails');
  if (fatal.length === 0) return { text: 'The failover capacity check is inconclusive.', tone: 'warn' };
  const nodes = fatal.flatMap((item) => item.nodes);
  const which = nodes.length > 3 ? `one of ${nodes.length} nodes` : nodes.join(' or ');
  return { text: `If ${which} fails, some services cannot run.`, tone: 'warn' };
}

function watchdogSentence(overview: Overview): Sentence | undefined {
  const nodes = overview.nodes.filter((node) => node.state !== 'Gone');
  if (nodes.length === 0) return undefined;
  const armed = nodes.filter((node) => node.lease && node.watchdog?.armed === true).length;
  // The watchdog of a node without services need not be armed.
  const isComplete = nodes.every((node) => node.services === 0 || (node.lease && node.watchdog?.armed === true));
  return { text: `Watchdogs armed on ${armed} of ${countWithNoun(nodes.length, 'node')}.`, tone: isComplete ? 'ok' : 'warn' };
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
  const failure = !overview.store.quorum
    ? 'etcd has no quorum: services run unchanged, but cannot be recovered.'
    : overview.leader == null
      ? 'No controller is leader: services run unchanged, but cannot be recovered.'
      : undefined;
  const isArmed = overview.arming === 'Armed' || overview.arming === '';
  const sentences = [
    failure === undefined ? undefined : { text: failure, tone: 'bad' as const },
    isArmed ? undefined : { text: `The cluster is ${overview.arming.toLowerCase()}.`, tone: 'warn' as const },
    overview.store.quorum ? servicesSentence(resources) : undefined,
    overview.store.quorum ? capacitySentence(report) : undefined,
    watchdogSentence(overview),
  ];
  return { tone: tone(overview), sentences: sentences.filter((sentence) => sentence !== undefined) };
}
