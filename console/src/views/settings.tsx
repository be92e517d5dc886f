// The settings of the cluster as a form: bounds, and the failover times that the server computes for the timing.
import { useEffect, useState } from 'preact/hooks';
import { testNotifications } from '../actions/cluster';
import { patchAction, type Action } from '../actions/action';
import { ActionButton } from '../actions/run';
import { client, messageOf } from '../api/client';
import type { Cluster, TimingReport } from '../api/objects';
import { assignments, changedFields, fieldsOf, labelBelow, patchOf, problemOf, valuesOf, type Field, type Values } from '../derive/form';
import { secondsText } from '../derive/time';
import { Card, CommandLine, Loading } from '../parts/basics';
import { Editor } from '../parts/editor';
import { FieldRow, FormEnd } from '../parts/form';
import { Icon } from '../parts/icon';
import { Table } from '../parts/table';
import { refusal } from '../state/session';
import { useSchema } from '../state/schema';

/** Fields of the spec that the form leaves to the editor or to other buttons. */
const NOT_IN_FORM = ['disarmed', 'notifications'];

const SECTIONS: { title: string; prefix: string }[] = [
  { title: 'Timing', prefix: 'timing.' },
  { title: 'Fencing', prefix: 'fencing.' },
  { title: 'Failover capacity', prefix: 'reservation.' },
  { title: 'Scheduling', prefix: 'scheduler.' },
  { title: 'General', prefix: '' },
];

/** Waiting time after the last change before the server computes the failover times again. */
const DELAY_MILLISECONDS = 250;

function sectionOf(field: Field): string {
  return SECTIONS.find((section) => section.prefix !== '' && field.path.startsWith(section.prefix))?.title ?? 'General';
}

export function Settings({ cluster }: { cluster: Cluster }) {
  const schema = useSchema('Cluster')?.properties?.['spec'];
  const [edits, setEdits] = useState<Values>({});
  if (schema === undefined) return <Loading />;
  const all = fieldsOf(schema, '').filter((field) => !NOT_IN_FORM.includes(field.path.split('.')[0] ?? ''));
  const stored = valuesOf(all, cluster.spec);
  const values = { ...stored, ...edits };
  const set = (path: string, text: string) => setEdits({ ...edits, [path]: text });
  return (
    <>
      <Form cluster={cluster} fields={all} stored={stored} values={values} set={set} reset={() => setEdits({})} />
      <Notifications cluster={cluster} />
      <Card title="Definition of the settings" wide>
        <Editor plural="clusters" object={cluster} />
      </Card>
    </>
  );
}

interface FormProps {
  cluster: Cluster;
  fields: Field[];
  stored: Values;
  values: Values;
  set: (path: string, text: string) => void;
  reset: () => void;
}

/** Returns the timing settings of a patch over the stored ones, without removed fields. */
function timingOf(cluster: Cluster, timing: unknown): Record<string, unknown> {
  const merged = { ...(cluster.spec?.timing ?? {}), ...((timing as Record<string, unknown> | undefined) ?? {}) };
  return Object.fromEntries(Object.entries(merged).filter(([, value]) => value !== null));
}

function Form({ cluster, fields, stored, values, set, reset }: FormProps) {
  const spec = patchOf(fields, stored, values);
  const now = useTiming(timingOf(cluster, undefined));
  const next = useTiming(timingOf(cluster, spec['timing']));
  const bounded = fields.map((field) => withBounds(field, next.report));
  const problems = bounded.map((field) => problemOf(field, values[field.path] ?? '')).filter((problem) => problem !== undefined);
  const changes = changedFields(bounded, stored, values);
  const action: Action = {
    label: 'Apply',
    title: 'Change the settings of the cluster',
    command: `hactl set cluster/${cluster.metadata.name} ${assignments(bounded, stored, values)}`,
    ...patchAction('clusters', cluster.metadata.name, { spec }),
  };
  const reason = refusal(action.permission);
  return (
    <>
      {SECTIONS.map(({ title }) => (
        <Card key={title} title={title} wide>
          <div class="form">
            {bounded
              .filter((field) => sectionOf(field) === title)
              .map((field) => (
                <FieldRow
                  key={field.path}
                  field={field}
                  label={labelBelow(field.path, 1)}
                  text={values[field.path] ?? ''}
                  isChanged={changes.includes(field)}
                  problem={serverProblem(field, next.report) ?? problemOf(field, values[field.path] ?? '')}
                  readOnly={reason !== undefined}
                  set={(text) => set(field.path, text)}
                />
              ))}
          </div>
          {title === 'Timing' && <FailoverTable now={now.report} next={next.report} error={next.error} />}
        </Card>
      ))}
      <FormEnd
        action={action}
        changes={changes.length}
        isValid={problems.length === 0 && (next.report?.problems.length ?? 0) === 0}
        label="Apply settings"
        reset={reset}
      />
    </>
  );
}

/** Returns the field with the bounds and the default that the server reports for timings. */
function withBounds(field: Field, report: TimingReport | undefined): Field {
  const setting = report?.settings.find((item) => `timing.${item.field}` === field.path);
  if (setting === undefined) return field;
  return { ...field, min: setting.min, max: setting.max ?? undefined, default: `${setting.profileValue}` };
}

/** Returns the server's problem of a timing, which can depend on other fields. */
function serverProblem(field: Field, report: TimingReport | undefined): string | undefined {
  return report?.problems.find((problem) => `timing.${problem.field}` === field.path)?.message;
}

interface Timing {
  report: TimingReport | undefined;
  error: string | undefined;
}

/** Reads the failover times for these settings, and again after a change. */
function useTiming(timing: Record<string, unknown>): Timing {
  const [state, setState] = useState<Timing>({ report: undefined, error: undefined });
  const body = JSON.stringify({ timing });
  useEffect(() => {
    let current = true;
    const timer = setTimeout(() => {
      client.write<TimingReport>('POST', '/apis/hactl.io/v1/timing', body).then(
        (answer) => current && setState({ report: answer.body, error: undefined }),
        (error: unknown) =>
          current && setState((last) => ({ ...last, error: messageOf(error) })),
      );
    }, DELAY_MILLISECONDS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [body]);
  return state;
}

function FailoverTable({ now, next, error }: { now: TimingReport | undefined; next: TimingReport | undefined; error: string | undefined }) {
  if (error !== undefined) {
    return (
      <p class="state bad" role="alert">
        <Icon name="bad" /> {error}
      </p>
    );
  }
  if (now === undefined || next === undefined) return <Loading />;
  const totalNow = (node: string) => now.failovers.find((item) => item.nodes.includes(node))?.totalSeconds;
  return (
    <>
      <h3>Longest failover with these settings</h3>
      <p class="quiet">
        Time from the last heartbeat of a failed node until its services start elsewhere, if etcd answers within its usual time.
        Fence devices that confirm earlier shorten it.
      </p>
      <div aria-live="polite">
        <Table
          label="Longest failover"
          rows={next.failovers}
          keyOf={(item) => item.nodes.join()}
          columns={[
            { title: 'Nodes', cell: (item) => item.nodes.join(', ') },
            { title: 'Active settings', numeric: true, cell: (item) => secondsText(totalNow(item.nodes[0] ?? '')) },
            { title: 'These settings', numeric: true, cell: (item) => <strong class="failover">{secondsText(item.totalSeconds)}</strong> },
            { title: 'Leader fails too', numeric: true, cell: (item) => secondsText(item.leaderNodeTotalSeconds) },
            { title: 'Fencing delay', numeric: true, cell: (item) => secondsText(item.fencingDelaySeconds) },
            { title: 'Parts', cell: (item) => <Parts item={item} /> },
          ]}
        />
      </div>
      {next.unreportedNodes.length > 0 && (
        <p class="quiet">Not computed, because no agent has reported a watchdog: {next.unreportedNodes.join(', ')}.</p>
      )}
      <CommandLine command="hactl timing --explain" />
    </>
  );
}

function Parts({ item }: { item: TimingReport['failovers'][number] }) {
  return (
    <details>
      <summary>{item.parts.filter((part) => !part.isSum).length} parts</summary>
      <dl class="facts">
        {item.parts.map((part) => (
          <div key={part.name} class={part.isSum ? 'sum' : undefined}>
            <dt>{part.name}</dt>
            <dd class="number">{part.nodeSeconds} s</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

function Notifications({ cluster }: { cluster: Cluster }) {
  const notifications = cluster.spec?.notifications;
  const webhooks = (notifications?.webhooks ?? []).map((webhook) => (typeof webhook === 'string' ? webhook : (webhook.url ?? '')));
  const hasMail = notifications?.smtp != null;
  return (
    <Card title="Notifications" wide>
      <p>
        {webhooks.length === 0 && !hasMail
          ? 'No targets. Add them to spec.notifications in the definition below.'
          : `Targets: ${[...webhooks.map((name) => `webhook ${name}`), ...(hasMail ? ['mail'] : [])].join(', ')}.`}
      </p>
      <div class="buttons left">
        <ActionButton actions={[testNotifications()]} />
      </div>
    </Card>
  );
}
