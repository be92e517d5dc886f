// Converts suggested actions, sentences of the server with hactl lines, to actions of the console.
import type { Node } from '../api/objects';
import type { Action } from './action';
import * as cluster from './cluster';
import * as nodes from './nodes';
import * as services from './services';

/** Returns the hactl lines in a sentence. */
export function commandsIn(help: string): string[] {
  const quoted = [...help.matchAll(/"(hactl [^"]+)"/g)].map((match) => match[1] ?? '');
  if (quoted.length > 0) return quoted;
  const bare = /(?:^|: )(hactl .+)$/.exec(help)?.[1];
  return bare === undefined ? [] : [bare];
}

/** Returns the action of a hactl line; undefined if the line needs a terminal or values of the user. */
export function actionOf(line: string, knownNodes: Node[]): Action | undefined {
  const words = line.split(/\s+/).slice(1);
  const [first, second, third, fourth] = words;
  const placeholder = words.some((word) => /^[A-Z]{2,}/.test(word) || word.startsWith('<'));
  if (placeholder || first === undefined) return undefined;
  const bare = (name: string) => name.split(':').pop() ?? name;
  const node = (name: string | undefined) => knownNodes.find((knownNode) => knownNode.metadata.name === name);
  if (first === 'node') {
    if (second === 'maintenance' && fourth !== undefined) {
      if (third === 'enable') return nodes.enableMaintenance(fourth);
      if (third === 'disable') return nodes.disableMaintenance(fourth);
      return undefined;
    }
    const thirdNode = node(third);
    if (third === undefined || thirdNode === undefined) return undefined;
    switch (second) {
      case 'confirm-fenced':
        return nodes.confirmFenced(thirdNode);
      case 'unfence':
        return nodes.unfence(thirdNode);
      case 'fence':
        return nodes.fence(third);
      case 'test-watchdog':
        return nodes.testWatchdog(thirdNode);
      case 'shutdown-continue':
        return nodes.continueShutdown(thirdNode);
      case 'follow-store':
        return nodes.followStore(third);
      default:
        return undefined;
    }
  }
  if (first === 'arm' && words.length === 1) return cluster.arm();
  if (second === undefined || words.length > 3) return undefined;
  switch (first) {
    case 'start':
      return third === undefined ? services.start(bare(second)) : undefined;
    case 'stop':
      return third === undefined ? services.stop(bare(second)) : undefined;
    case 'restart':
      return services.restart(bare(second));
    case 'clear-error':
    case 'cleanup':
      return services.clearError(bare(second));
    case 'migrate':
    case 'move':
      return third === undefined ? undefined : services.migrate(bare(second), third);
    case 'relocate':
      return third === undefined ? undefined : services.relocate(bare(second), third);
    case 'uncordon':
      return nodes.uncordon(second);
    default:
      return undefined;
  }
}
