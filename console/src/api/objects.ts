// The objects of the API as the console reads them: a stored object always has a name, a uid and a version.
import type {
  AffinityRule as AffinityRuleSchema,
  Cluster as ClusterSchema,
  Group as GroupSchema,
  Node as NodeSchema,
  NodeGroup as NodeGroupSchema,
  Operation as OperationSchema,
  Overview,
  Resource as ResourceSchema,
} from './types';

export type { AuditPage, BalancePlan, Explanation, Overview, PlacementHistory, Plan, ReservationReport, TimingReport, UsageOverview } from './types';

export interface StoredMetadata {
  name: string;
  uid: string;
  resourceVersion: string;
  creationTimestamp: string;
}

export interface StoredObject {
  kind?: string;
  metadata: StoredMetadata;
}

type Stored<T extends { metadata: unknown }> = Omit<T, 'metadata'> & {
  metadata: T['metadata'] & StoredMetadata;
};

export type Resource = Stored<ResourceSchema>;
export type Node = Stored<NodeSchema>;
export type Group = Stored<GroupSchema>;
export type AffinityRule = Stored<AffinityRuleSchema>;
export type NodeGroup = Stored<NodeGroupSchema>;
export type Cluster = Stored<ClusterSchema>;
export type Operation = Stored<OperationSchema>;

export type Problem = Overview['problems'][number];
export type NodeOverview = Overview['nodes'][number];
export type Condition = NonNullable<NonNullable<Resource['status']>['conditions']>[number];

/** An event in the form of core/v1. */
export interface ClusterEvent extends StoredObject {
  involvedObject: { kind?: string; name?: string };
  reason?: string;
  message?: string;
  type?: string;
  action?: string;
  count?: number;
  reportingComponent?: string;
  source?: { component?: string };
  firstTimestamp?: string;
  lastTimestamp?: string;
  related?: { kind?: string; name?: string };
}

/** The kinds that the console watches, by their plural names. */
export interface ObjectsByPlural {
  resources: Resource;
  nodes: Node;
  groups: Group;
  affinityrules: AffinityRule;
  nodegroups: NodeGroup;
  clusters: Cluster;
  operations: Operation;
  events: ClusterEvent;
}

export type PluralName = keyof ObjectsByPlural;

export const KIND_NAMES: Record<Exclude<PluralName, 'events'>, string> = {
  resources: 'Resource',
  nodes: 'Node',
  groups: 'Group',
  affinityrules: 'AffinityRule',
  nodegroups: 'NodeGroup',
  clusters: 'Cluster',
  operations: 'Operation',
};

/** Returns the path of a collection. */
export function collectionPath(plural: PluralName): string {
  return plural === 'events' ? '/api/v1/events' : `/apis/hactl.io/v1/${plural}`;
}

/** Returns the path of an object. */
export function objectPath(plural: PluralName, name: string): string {
  return `${collectionPath(plural)}/${encodeURIComponent(name)}`;
}

/** Returns the condition of a type. */
export function conditionOf(
  object: { status?: { conditions?: Condition[] } | null } | undefined,
  type: string,
): Condition | undefined {
  return object?.status?.conditions?.find((condition) => condition.type === type);
}
