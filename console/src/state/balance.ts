// The execution of a balancing plan: batch by batch, with the moves of a batch in parallel, as `hactl balance --apply`.
import { newOperation } from '../actions/action';
import { ApiError, client, type Client } from '../api/client';
import { collectionPath, objectPath, type BalancePlan, type Operation, type Resource } from '../api/objects';
import { Signal } from './signal';

type Group = BalancePlan['groups'][number];
export type BalanceMove = Group['batches'][number][number];

export interface BalanceRun {
  phase: 'idle' | 'running' | 'canceling' | 'done' | 'canceled' | 'failed';
  /** Number of finished moves. */
  done: number;
  total: number;
  /** Services that move now. */
  moving: string[];
  /** Reason why the execution stopped. */
  message: string;
}

const IDLE: BalanceRun = { phase: 'idle', done: 0, total: 0, moving: [], message: '' };
const POLL_MILLISECONDS = 500;

/** A plan in execution. The page executes the plan, so the execution ends when the page is closed. */
export class BalanceExecution {
  readonly state = new Signal<BalanceRun>(IDLE);

  constructor(
    private readonly api: Pick<Client, 'get' | 'write'>,
    private readonly pollMilliseconds = POLL_MILLISECONDS,
  ) {}

  get isRunning(): boolean {
    return this.state.value.phase === 'running' || this.state.value.phase === 'canceling';
  }

  /** Stops the execution after the moves in progress, which still finish. */
  cancel(): void {
    if (this.state.value.phase === 'running') this.change({ phase: 'canceling' });
  }

  /** Executes the moves of all groups. No further batch begins after a failure or a cancellation. */
  async run(groups: Group[]): Promise<void> {
    if (this.isRunning) return;
    const batches = groups.flatMap((group) => group.batches);
    const total = batches.reduce((sum, batch) => sum + batch.length, 0);
    this.state.set({ ...IDLE, phase: 'running', total });
    try {
      for (const batch of batches) {
        if (this.state.value.phase === 'canceling') break;
        await this.runBatch(batch);
      }
      const canceled = this.state.value.phase === 'canceling' && this.state.value.done < total;
      this.change({ phase: canceled ? 'canceled' : 'done', moving: [] });
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      this.change({ phase: 'failed', message, moving: [] });
    }
  }

  private change(part: Partial<BalanceRun>): void {
    this.state.set({ ...this.state.value, ...part });
  }

  private async runBatch(batch: BalanceMove[]): Promise<void> {
    for (const move of batch) await this.checkNode(move);
    this.change({ moving: batch.flatMap((move) => [move.resource, ...move.with]) });
    const results = await Promise.allSettled(batch.map((move) => this.runMove(move)));
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  /** Fails if the service has moved since the plan was made. */
  private async checkNode(move: BalanceMove): Promise<void> {
    const resource = await this.api.get<Resource>(objectPath('resources', move.resource));
    const node = resource.status?.node ?? 'no node';
    if (node !== move.from[0]) {
      throw new Error(`${move.resource} is on ${node}, but was on ${move.from[0]} when the plan was made: plan again`);
    }
  }

  private async runMove(move: BalanceMove): Promise<void> {
    for (const { action, resource, node } of move.operations) {
      const body = newOperation({ action, resource, node });
      const { body: created } = await this.api.write<Operation>('POST', collectionPath('operations'), body);
      await this.waitFor(created.metadata.name);
    }
    this.change({ done: this.state.value.done + 1, moving: this.state.value.moving.filter((name) => name !== move.resource) });
  }

  private async waitFor(name: string): Promise<void> {
    for (;;) {
      let operation: Operation;
      try {
        operation = await this.api.get<Operation>(objectPath('operations', name));
      } catch (error) {
        // The controller may be restarting; another one answers the next request.
        if (!(error instanceof ApiError) || (error.status !== 0 && error.status < 500)) throw error;
        await this.pause();
        continue;
      }
      const phase = operation.status?.phase;
      if (phase === 'Succeeded') return;
      if (phase === 'Failed' || phase === 'Refused') {
        throw new Error(`operation ${name}: ${phase}: ${operation.status?.message ?? ''}`);
      }
      await this.pause();
    }
  }

  private pause(): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, this.pollMilliseconds));
  }
}

/** The execution of this page; it continues while another view is shown. */
export const balanceExecution = new BalanceExecution(client);
