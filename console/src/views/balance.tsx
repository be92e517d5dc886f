// The balancing plan: load of the nodes before and after, planned moves, their execution with progress and cancellation.
import { useState } from 'preact/hooks';
import { client, messageOf } from '../api/client';
import type { BalancePlan } from '../api/objects';
import { bytesText } from '../derive/quantity';
import { Card, CommandLine, Empty, ObjectLink, State } from '../parts/basics';
import { Dialog } from '../parts/dialog';
import { Icon } from '../parts/icon';
import { Table } from '../parts/table';
import { balanceExecution, type BalanceMove, type BalanceRun } from '../state/balance';
import { refusal } from '../state/session';
import { useSignal } from '../state/signal';

type Group = BalancePlan['groups'][number];

/** Longest time for a plan: the search, and reading a large cluster. */
const TIMEOUT_MILLISECONDS = 60_000;

type Planning = { phase: 'none' } | { phase: 'busy' } | { phase: 'failed'; message: string } | { phase: 'known'; plan: BalancePlan };

function moveCount(plan: BalancePlan): number {
  return plan.groups.reduce((sum, group) => sum + group.batches.reduce((count, batch) => count + batch.length, 0), 0);
}

/** Returns the reason why the user may not make the moves of a plan; undefined if all are permitted. */
function refusalOf(plan: BalancePlan): string | undefined {
  const operations = plan.groups.flatMap((group) => group.batches.flat().flatMap((move) => move.operations));
  const actions = new Set(operations.map((operation) => operation.action));
  return [...actions].map((action) => refusal({ verb: 'create', resource: `operations/${action}` })).find((reason) => reason !== undefined);
}

export function BalanceCard() {
  const [planning, setPlanning] = useState<Planning>({ phase: 'none' });
  const [isAsking, setIsAsking] = useState(false);
  const run = useSignal(balanceExecution.state);
  const read = async () => {
    setPlanning({ phase: 'busy' });
    try {
      setPlanning({ phase: 'known', plan: await client.get<BalancePlan>('/apis/hactl.io/v1/balance', TIMEOUT_MILLISECONDS) });
    } catch (error) {
      setPlanning({ phase: 'failed', message: messageOf(error) });
    }
  };
  const start = (plan: BalancePlan) => {
    setIsAsking(false);
    setPlanning({ phase: 'none' });
    void balanceExecution.run(plan.groups);
  };
  const plan = planning.phase === 'known' ? planning.plan : undefined;
  const moves = plan === undefined ? 0 : moveCount(plan);
  const reason = plan === undefined ? undefined : refusalOf(plan);
  return (
    <Card title="Balance" wide aside={<CommandLine command="hactl balance" />}>
      <p class="quiet">Moves services to reduce the load imbalance of the nodes. The plan changes nothing until you apply it.</p>
      <Progress run={run} />
      {planning.phase === 'failed' && (
        <p class="state bad" role="alert">
          <Icon name="bad" /> {planning.message}
        </p>
      )}
      {plan !== undefined && plan.groups.map((group) => <GroupPlan key={group.group} group={group} />)}
      {plan !== undefined && plan.groups.length === 0 && <Empty>No nodes.</Empty>}
      <div class="buttons left">
        <button type="button" disabled={planning.phase === 'busy' || balanceExecution.isRunning} onClick={() => void read()}>
          {planning.phase === 'busy' ? 'Planning…' : plan === undefined ? 'Plan moves' : 'Plan again'}
        </button>
        {moves > 0 && (
          <button
            type="button"
            class="primary"
            aria-disabled={reason !== undefined}
            title={reason ?? 'hactl balance --apply'}
            onClick={() => reason === undefined && setIsAsking(true)}
          >
            Apply {moves} {moves === 1 ? 'move' : 'moves'}
            {reason !== undefined && <span class="hidden-text">: {reason}</span>}
          </button>
        )}
      </div>
      {isAsking && plan !== undefined && (
        <Dialog title="Apply the plan" onClose={() => setIsAsking(false)}>
          <h2>Apply the plan</h2>
          <p>
            {moves} {moves === 1 ? 'service moves' : 'services move'}, one batch after the other. {relocations(plan)}
          </p>
          <p class="warning">
            <Icon name="warn" />
            <span>This page starts the moves. If you close the page, no further batch begins.</span>
          </p>
          <CommandLine command="hactl balance --apply" />
          <div class="buttons">
            <button type="button" onClick={() => setIsAsking(false)}>
              Cancel
            </button>
            <button type="button" class="primary" autofocus onClick={() => start(plan)}>
              Apply
            </button>
          </div>
        </Dialog>
      )}
    </Card>
  );
}

/** Returns a sentence about the services that are stopped during their move. */
function relocations(plan: BalancePlan): string {
  const operations = plan.groups.flatMap((group) => group.batches.flat().flatMap((move) => move.operations));
  const stopped = operations.filter((operation) => operation.action === 'Relocate').length;
  return stopped === 0 ? 'All of them live-migrate.' : `${stopped} of them ${stopped === 1 ? 'is' : 'are'} stopped and started.`;
}

function Progress({ run }: { run: BalanceRun }) {
  if (run.phase === 'idle') return null;
  const isRunning = run.phase === 'running' || run.phase === 'canceling';
  const tone = run.phase === 'failed' ? 'bad' : run.phase === 'done' ? 'ok' : 'warn';
  const word = { idle: '', running: 'Moving', canceling: 'Canceling', done: 'Done', canceled: 'Canceled', failed: 'Stopped' }[run.phase];
  return (
    <div class="run" role="status">
      <State tone={tone}>{word}</State>
      <progress value={run.done} max={Math.max(1, run.total)} aria-label="Finished moves" />
      <span class="number">
        {run.done} of {run.total} moves
      </span>
      {isRunning && run.moving.length > 0 && <span class="quiet">Moving now: {run.moving.join(', ')}</span>}
      {run.message !== '' && <span>{run.message}</span>}
      {isRunning && (
        <button type="button" disabled={run.phase === 'canceling'} onClick={() => balanceExecution.cancel()}>
          {run.phase === 'canceling' ? 'Waiting for moves in progress' : 'Cancel'}
        </button>
      )}
    </div>
  );
}

function GroupPlan({ group }: { group: Group }) {
  const moves = group.batches.flatMap((batch, index) => batch.map((move) => ({ move, batch: index + 1 })));
  return (
    <section class="group-plan" aria-label={`Plan of group ${group.group}`}>
      <h3>Group {group.group}</h3>
      <p>
        {moves.length === 0 ? 'Nothing to move. ' : ''}
        Score {group.scoreBefore.toFixed(3)}
        {moves.length > 0 && (
          <>
            {' '}
            → <strong>{group.scoreAfter.toFixed(3)}</strong>
          </>
        )}{' '}
        <span class="quiet">(lower is better{group.timeLimited ? '; the search ended at its time limit' : ''})</span>
      </p>
      {moves.length > 0 && (
        <>
          <Table
            label={`Nodes of group ${group.group}, before and after`}
            rows={group.nodes}
            keyOf={(node) => node.node}
            columns={[
              { title: 'Node', cell: (node) => <ObjectLink kind="node" name={node.node} /> },
              { title: 'Services before', numeric: true, cell: (node) => node.before.services },
              { title: 'Services after', numeric: true, cell: (node) => changedValue(node.before.services, node.after.services, String) },
              { title: 'Memory before', numeric: true, cell: (node) => mebibytes(node.before.memoryMebibytes) },
              { title: 'Memory after', numeric: true, cell: (node) => changedValue(node.before.memoryMebibytes, node.after.memoryMebibytes, mebibytes) },
              { title: 'Cores before', numeric: true, cell: (node) => node.before.cpuMilli / 1000 },
              { title: 'Cores after', numeric: true, cell: (node) => changedValue(node.before.cpuMilli, node.after.cpuMilli, (value) => `${value / 1000}`) },
            ]}
          />
          <Table
            label={`Moves of group ${group.group}`}
            rows={moves}
            keyOf={({ move, batch }) => `${batch} ${move.resource}`}
            columns={[
              { title: 'Batch', numeric: true, cell: ({ batch }) => batch },
              { title: 'Service', cell: ({ move }) => <ServiceNames move={move} /> },
              { title: 'From', cell: ({ move }) => move.from.join(', ') },
              { title: 'To', cell: ({ move }) => move.to.join(', ') },
              { title: 'Score after', numeric: true, cell: ({ move }) => move.score.toFixed(3) },
              { title: 'Commands', cell: ({ move }) => commandsOf(move).map((command) => <code key={command}>{command} </code>) },
            ]}
          />
        </>
      )}
    </section>
  );
}

const mebibytes = (value: number) => bytesText(value * 2 ** 20);

function changedValue(before: number, after: number, show: (value: number) => string) {
  return before === after ? show(after) : <strong>{show(after)}</strong>;
}

const VERBS: Record<string, string> = { Migrate: 'migrate', Relocate: 'relocate', ReplaceSecondary: 'replace-secondary' };

function commandsOf(move: BalanceMove): string[] {
  return move.operations.map(({ action, resource, node }) => `hactl ${VERBS[action] ?? action} ${resource} ${node}`);
}

function ServiceNames({ move }: { move: BalanceMove }) {
  return (
    <>
      <ObjectLink kind="resource" name={move.resource} />
      {move.with.length > 0 && <span class="quiet"> with {move.with.join(', ')}</span>}
    </>
  );
}
