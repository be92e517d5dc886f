// The layout of the placement view: columns of nodes, blocks of services, headroom, and the layout after a failure.
import type { AffinityRule, Node, Overview, Plan, ReservationReport, Resource, UsageOverview } from '../api/objects';
import { serviceTone } from './tones';
import type { Tone } from './headline';
import { parseQuantity } from './quantity';

export type Dimension = 'memory' | 'cpu' | 'count';

export interface Block {
  name: string;
  type: string;
  state: string;
  tone: Tone;
  /** Amount in the dimension of the layout. */
  size: number;
  /** Node from which the simulated failure moves the service. */
  movedFrom?: string;
  /** Reasons why no node is eligible after the simulated failure. */
  blockingReasons?: string[];
}

export interface Column {
  node: string;
  group: string;
  state: string;
  capacity: number;
  allocated: number;
  /** Largest amount that one failure of another node would move here. */
  headroom: number;
  blocks: Block[];
  failed: boolean;
}

export interface PlacementFacts {
  overview: Overview;
  usage: UsageOverview;
  resources: Resource[];
  nodes: Node[];
  report: ReservationReport | undefined;
}

/** Returns the dimension in which sizes differ: memory if requested, else cores, else one for each service. */
export function bestDimension(usage: UsageOverview): Dimension {
  if (usage.resources.some((resource) => (parseQuantity(resource.requests.memory) ?? 0) > 0)) return 'memory';
  if (usage.resources.some((resource) => (parseQuantity(resource.requests.cpu) ?? 0) > 0)) return 'cpu';
  return 'count';
}

type Amounts = { cpu?: string | number | null; memory?: string | number | null };

function amount(amounts: Amounts | undefined, dimension: Dimension): number {
  if (dimension === 'count') return 1;
  return parseQuantity(amounts?.[dimension]) ?? 0;
}

/** Returns the columns of registered nodes, ordered by node group and name. */
export function nodeColumns(facts: PlacementFacts, dimension: Dimension): Column[] {
  const { overview, usage, resources, nodes, report } = facts;
  const requests = new Map(usage.resources.map((resource) => [resource.name, resource]));
  const sizeOf = (name: string) => amount(requests.get(name)?.requests, dimension);
  const nodeByName = new Map(nodes.map((node) => [node.metadata.name, node]));
  const amountsByName = new Map(usage.nodes.map((node) => [node.name, node]));
  const headroom = headrooms(report, sizeOf);
  const blocksByNode = new Map<string, Block[]>();
  for (const resource of resources) {
    const node = resource.status?.node;
    if (node == null) continue;
    const block = blockOf(resource, requests.get(resource.metadata.name)?.type ?? '', sizeOf);
    const blocks = blocksByNode.get(node);
    if (blocks === undefined) blocksByNode.set(node, [block]);
    else blocks.push(block);
  }
  const result = overview.nodes
    .filter((node) => node.state !== 'Gone')
    .map((node): Column => {
      const amounts = amountsByName.get(node.name);
      const blocks = blocksByNode.get(node.name) ?? [];
      const allocated = blocks.reduce((sum, block) => sum + block.size, 0);
      return {
        node: node.name,
        group: nodeByName.get(node.name)?.spec?.nodeGroup ?? '',
        state: node.state,
        capacity: dimension === 'count' ? 0 : amount(amounts?.capacity, dimension),
        allocated,
        headroom: headroom.get(node.name) ?? 0,
        blocks,
        failed: false,
      };
    });
  return result.sort((a, b) => (a.group === b.group ? compareNames(a.node, b.node) : compareNames(a.group, b.group)));
}

function compareNames(a: string, b: string): number {
  return a.localeCompare(b, 'en', { numeric: true });
}

function blockOf(resource: Resource, type: string, sizeOf: (name: string) => number): Block {
  const { name } = resource.metadata;
  return { name, type, state: resource.status?.state ?? 'Queued', tone: serviceTone(resource), size: sizeOf(name) };
}

/** Returns the services that are assigned to no node. */
export function unplaced(resources: Resource[]): Block[] {
  return resources
    .filter((resource) => resource.status?.node == null)
    .map((resource) => blockOf(resource, '', () => 0));
}

/** Returns the largest amount that one failure would move to each node. */
function headrooms(report: ReservationReport | undefined, sizeOf: (name: string) => number): Map<string, number> {
  const largest = new Map<string, number>();
  for (const item of report?.items ?? []) {
    const moved = new Map<string, number>();
    for (const move of item.moves ?? []) moved.set(move.to, (moved.get(move.to) ?? 0) + sizeOf(move.resource));
    for (const [node, amount] of moved) largest.set(node, Math.max(largest.get(node) ?? 0, amount));
  }
  return largest;
}

/** The nodes of a group as one. */
export interface GroupSummary {
  group: string;
  columns: Column[];
  services: number;
  /** Number of services that are not as requested. */
  unhealthy: number;
  /** Number of nodes that are not online. */
  unavailable: number;
  capacity: number;
  allocated: number;
}

/** Returns the groups of the columns, in their order. */
export function summarize(all: Column[]): GroupSummary[] {
  const groups = new Map<string, Column[]>();
  for (const column of all) {
    const columns = groups.get(column.group);
    if (columns === undefined) groups.set(column.group, [column]);
    else columns.push(column);
  }
  const sum = (columns: Column[], value: (column: Column) => number) => columns.reduce((total, column) => total + value(column), 0);
  return [...groups].map(([group, columns]) => ({
    group,
    columns,
    services: sum(columns, (column) => column.blocks.length),
    unhealthy: sum(columns, countUnhealthy),
    unavailable: columns.filter((column) => column.failed || column.state !== 'Online').length,
    capacity: sum(columns, (column) => column.capacity),
    allocated: sum(columns, (column) => column.allocated),
  }));
}

/** Returns the number of services of a node that are not as requested, or could not run after a simulated failure. */
export function countUnhealthy(column: Column): number {
  return column.blocks.filter((block) => block.tone === 'bad' || block.tone === 'warn' || block.blockingReasons !== undefined).length;
}

export type Failure = ReservationReport['items'][number];
export type Move = NonNullable<Failure['moves']>[number];

/** Returns the report about the failure of one node. */
export function failureOf(node: string, report: ReservationReport | undefined): Failure | undefined {
  return report?.items.find((item) => item.nodes.length === 1 && item.nodes[0] === node);
}

/** Returns the moves of a plan for the maintenance of the node. */
export function movesOf(plan: Plan, node: string): Move[] {
  return plan.effects
    .filter((effect) => effect.from === node && effect.to != null && effect.to !== node)
    .map((effect) => ({ resource: effect.resource, from: node, to: effect.to ?? '' }));
}

/** Returns the layout after the failure of a node, as the server has simulated it. */
export function afterFailure(before: Column[], node: string, item: Failure | undefined, otherMoves: Move[]): Column[] {
  const allMoves = [...otherMoves, ...(item?.makeRoom ?? []), ...(item?.moves ?? [])];
  const moves = new Map(allMoves.map((move) => [move.resource, move]));
  const unplacedByName = new Map((item?.withoutPlace ?? []).map((service) => [service.resource, service]));
  const moving: Block[] = [];
  const staying = before.map((column): Column => {
    const blocks = column.blocks.flatMap((block) => {
      if (moves.has(block.name)) {
        moving.push({ ...block, movedFrom: column.node });
        return [];
      }
      const lacks = unplacedByName.get(block.name)?.lacks;
      return [lacks === undefined ? block : { ...block, blockingReasons: lacks.map((lack) => `${lack.node}: ${lack.message}`) }];
    });
    return { ...column, blocks, failed: column.node === node };
  });
  return staying.map((column) => ({
    ...column,
    blocks: [...column.blocks, ...moving.filter((block) => moves.get(block.name)?.to === column.node)],
  }));
}

type ResourceAffinity = NonNullable<NonNullable<AffinityRule['spec']>['resourceAffinity']>;

export interface Relation {
  name: string;
  kind: 'Positive' | 'Negative';
}

/** Returns the kind of a rule's affinity between services. The API omits fields that have their default. */
export function resourceAffinityOf({ affinity, strict }: ResourceAffinity): { kind: Relation['kind']; isStrict: boolean } {
  return { kind: affinity ?? 'Positive', isStrict: strict ?? true };
}

/** Returns the services that rules relate to a service, with a sentence for each rule. */
export function relations(name: string, rules: AffinityRule[]): { related: Relation[]; sentences: string[] } {
  const related: Relation[] = [];
  const sentences: string[] = [];
  for (const rule of rules) {
    const affinity = rule.spec?.resourceAffinity;
    const bare = (affinity?.resources ?? []).map((resource) => resource.split(':').pop() ?? resource);
    if (rule.spec?.disabled === true || affinity == null || !bare.includes(name)) continue;
    const { kind, isStrict } = resourceAffinityOf(affinity);
    const others = bare.filter((resourceName) => resourceName !== name);
    related.push(...others.map((other) => ({ name: other, kind }) as const));
    const where = kind === 'Positive' ? 'same node as' : 'different node than';
    sentences.push(`Rule ${rule.metadata.name}: ${isStrict ? '' : 'preferably '}${where} ${others.join(', ')}`);
  }
  return { related, sentences };
}
