// Failover capacity: for each failure, whether every service could run, and where.
import { useState } from 'preact/hooks';
import type { ReservationReport } from '../api/objects';
import type { Tone } from '../derive/headline';
import { Card, CommandLine, Loading, ObjectLink, PageTitle, State } from '../parts/basics';
import { Table } from '../parts/table';
import { reservation, usePolled } from '../state/cluster';
import { BalanceCard } from './balance';

type Failure = ReservationReport['items'][number];

export function verdictTone(verdict: Failure['verdict']): Tone {
  return verdict === 'Survives' ? 'ok' : verdict === 'Fails' ? 'bad' : 'warn';
}

const VERDICT_WORDS = { Survives: 'Every service runs', Fails: 'Some services cannot run', Unknown: 'Undecided' };

export function CapacityView() {
  const { value } = usePolled(reservation);
  if (value === undefined) return <Loading />;
  return (
    <>
      <PageTitle title="Capacity">
        <State tone={verdictTone(value.verdict)}>
          {value.verdict === 'Survives' ? 'Any one node may fail' : VERDICT_WORDS[value.verdict]}
        </State>
      </PageTitle>
      {value.message !== undefined && value.message !== '' && <p class="lead">{value.message}</p>}
      <Card title="Failure of one node" wide aside={<CommandLine command="hactl check n+1 --show-placement" />}>
        <p class="quiet">
          Amounts: {value.basis}. {value.countStopped ? 'Stopped services count as if they ran.' : 'Stopped services do not count.'}{' '}
          {value.checked} failures simulated.
        </p>
        <Table<Failure>
          label="Simulated failures"
          rows={value.items}
          keyOf={(item) => item.what}
          columns={[
            { title: 'Failure', cell: (item) => item.what },
            { title: 'Verdict', cell: (item) => <State tone={verdictTone(item.verdict)}>{VERDICT_WORDS[item.verdict]}</State> },
            { title: 'Reason', cell: (item) => item.because },
            { title: 'Details', cell: (item) => <Details item={item} /> },
          ]}
        />
      </Card>
      <BalanceCard />
    </>
  );
}

function Details({ item }: { item: Failure }) {
  const [open, setOpen] = useState(item.verdict === 'Fails');
  const moves = [...(item.makeRoom ?? []), ...(item.moves ?? [])];
  const without = item.withoutPlace ?? [];
  if (moves.length + without.length === 0) return null;
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {moves.length} {moves.length === 1 ? 'move' : 'moves'}
        {without.length > 0 ? `, ${without.length} without an eligible node` : ''}
      </summary>
      {open && (
        <ul class="moves">
          {without.map((service) => (
            <li key={service.resource}>
              <State tone="bad">No eligible node</State> <ObjectLink kind="resource" name={service.resource} />
              <ul>
                {service.lacks.map((lack) => (
                  <li key={lack.node}>
                    {lack.node}: {lack.message}
                  </li>
                ))}
              </ul>
            </li>
          ))}
          {moves.map((move) => (
            <li key={move.resource}>
              <ObjectLink kind="resource" name={move.resource} />: {move.from} → {move.to}
            </li>
          ))}
        </ul>
      )}
    </details>
  );
}
