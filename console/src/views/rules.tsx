// Rules, groups and node groups: their members, whether they apply, and their definition.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { deleteAction, type Action } from '../actions/action';
import { ActionButton } from '../actions/run';
import { KIND_NAMES, conditionOf, type AffinityRule, type Condition, type Group, type NodeGroup } from '../api/objects';
import { resourceAffinityOf } from '../derive/placement';
import { Card, Empty, Loading, ObjectLink, PageTitle, State } from '../parts/basics';
import { Conditions } from '../parts/conditions';
import { Editor, NewButton } from '../parts/editor';
import { ObjectForm } from '../parts/form';
import { NewObject } from '../parts/new-object';
import { Table } from '../parts/table';
import { useObjects } from '../state/cluster';
import { navigate } from '../router';

type RulePlural = 'affinityrules' | 'groups' | 'nodegroups';

const PLURALS: Record<string, RulePlural> = { affinityrule: 'affinityrules', group: 'groups', nodegroup: 'nodegroups' };

function removeRule(plural: RulePlural, name: string): Action {
  const kind = KIND_NAMES[plural].toLowerCase();
  return {
    label: 'Delete',
    title: `Delete ${kind} ${name}`,
    command: `hactl delete ${kind} ${name}`,
    ...deleteAction(plural, name),
  };
}

/** Returns the nodes of a group or rule with their priorities as text. */
function nodesText(nodes: Record<string, number> | string[] | string | undefined): string {
  if (nodes === undefined) return '';
  if (typeof nodes === 'string') return nodes;
  if (Array.isArray(nodes)) return nodes.join(', ');
  return Object.entries(nodes)
    .map(([name, priority]) => (priority ? `${name}:${priority}` : name))
    .join(', ');
}

function ruleText(rule: AffinityRule): string {
  const { nodeAffinity, resourceAffinity } = rule.spec ?? {};
  if (nodeAffinity != null) {
    const verb = nodeAffinity.strict === true ? 'run only on' : 'preferably run on';
    return `${(nodeAffinity.resources ?? []).join(', ')} ${verb} ${nodesText(nodeAffinity.nodes)}`;
  }
  if (resourceAffinity != null) {
    const { kind, isStrict } = resourceAffinityOf(resourceAffinity);
    const where = kind === 'Negative' ? 'on different nodes' : 'on one node';
    const verb = isStrict ? 'run' : 'preferably run';
    return `${(resourceAffinity.resources ?? []).join(', ')} ${verb} ${where}`;
  }
  return '';
}

function Applied({ condition, disabled }: { condition: Condition | undefined; disabled?: boolean | undefined }) {
  if (disabled === true) return <State tone="idle">Disabled</State>;
  if (condition === undefined) return <State tone="idle">Not processed</State>;
  return condition.status === 'True' ? <State tone="ok">Applied</State> : <State tone="bad">Not applied</State>;
}

const message = (object: { status?: { conditions?: Condition[] } | null }) => (
  <span class="message">{conditionOf(object, 'Ready')?.message ?? ''}</span>
);

export function RulesView() {
  const rules = useObjects('affinityrules');
  const groups = useObjects('groups');
  const nodeGroups = useObjects('nodegroups');
  if (rules === undefined || groups === undefined || nodeGroups === undefined) return <Loading />;
  return (
    <>
      <PageTitle title="Rules and groups" />
      <Section title="Affinity rules" plural="affinityrules" empty="No affinity rules.">
        {rules.length > 0 && (
          <Table<AffinityRule>
            label="Affinity rules"
            rows={rules}
            keyOf={(rule) => rule.metadata.name}
            columns={[
              { title: 'Name', cell: (rule) => <ObjectLink kind="affinityrule" name={rule.metadata.name} /> },
              { title: 'Rule', cell: ruleText },
              { title: 'Applied', cell: (rule) => <Applied condition={conditionOf(rule, 'Ready')} disabled={rule.spec?.disabled} /> },
              { title: 'Message', cell: message },
            ]}
          />
        )}
      </Section>
      <Section title="Groups" plural="groups" empty="No groups.">
        {groups.length > 0 && (
          <Table<Group>
            label="Groups"
            rows={groups}
            keyOf={(group) => group.metadata.name}
            columns={[
              { title: 'Name', cell: (group) => <ObjectLink kind="group" name={group.metadata.name} /> },
              { title: 'Nodes', cell: (group) => nodesText(group.spec?.nodes) },
              { title: 'Restricted', cell: (group) => (group.spec?.restricted === true ? 'Yes' : 'No') },
              { title: 'Failback', cell: (group) => (group.spec?.nofailback === true ? 'No' : 'Yes') },
              { title: 'Applied', cell: (group) => <Applied condition={conditionOf(group, 'Ready')} /> },
              { title: 'Message', cell: message },
            ]}
          />
        )}
      </Section>
      <Section title="Node groups" plural="nodegroups" empty="No node groups.">
        {nodeGroups.length > 0 && (
          <Table<NodeGroup>
            label="Node groups"
            rows={nodeGroups}
            keyOf={(group) => group.metadata.name}
            columns={[
              { title: 'Name', cell: (group) => <ObjectLink kind="nodegroup" name={group.metadata.name} /> },
              { title: 'Nodes', cell: (group) => (group.status?.nodes ?? []).join(', ') },
              { title: 'Allocation', cell: (group) => group.spec?.allocationPolicy ?? 'Preferred' },
              { title: 'Message', cell: message },
            ]}
          />
        )}
      </Section>
    </>
  );
}

function Section(props: { title: string; plural: RulePlural; empty: string; children: ComponentChildren }) {
  const [creating, setCreating] = useState(false);
  return (
    <Card
      title={props.title}
      wide
      aside={
        <NewButton label={`New ${KIND_NAMES[props.plural]}`} plural={props.plural} open={() => setCreating(true)} />
      }
    >
      {props.children || <Empty>{props.empty}</Empty>}
      {creating && <NewObject plural={props.plural} onClose={() => setCreating(false)} />}
    </Card>
  );
}

/** Returns `true` unless the field belongs to the form of affinity that the rule does not have. */
function isPartOf(object: AffinityRule | Group | NodeGroup, path: string): boolean {
  const part = path.split('.')[0] ?? '';
  return !part.endsWith('Affinity') || (object.spec as Record<string, unknown> | undefined)?.[part] != null;
}

export function RuleView({ kind, name }: { kind: string; name: string }) {
  const plural = PLURALS[kind] ?? 'groups';
  const objects: (AffinityRule | Group | NodeGroup)[] | undefined = useObjects(plural);
  if (objects === undefined) return <Loading />;
  const object = objects.find((item) => item.metadata.name === name);
  if (object === undefined) {
    return (
      <>
        <PageTitle title={name} />
        <Empty>No object of kind {KIND_NAMES[plural]} has this name.</Empty>
      </>
    );
  }
  return (
    <>
      <PageTitle
        title={
          <>
            <span class="quiet">{KIND_NAMES[plural]} </span>
            {name}
          </>
        }
      >
        <ActionButton actions={[removeRule(plural, name)]} />
        <button type="button" onClick={() => navigate('#/rules')}>
          All rules and groups
        </button>
      </PageTitle>
      <div class="grid">
        <Card title="Conditions" wide>
          <Conditions conditions={object.status?.conditions ?? []} />
        </Card>
        <Card title="Settings" wide>
          <ObjectForm key={object.metadata.uid} plural={plural} object={object} includes={(path) => isPartOf(object, path)} />
        </Card>
        <Card title="Definition" wide>
          <Editor plural={plural} object={object} />
        </Card>
      </div>
    </>
  );
}
