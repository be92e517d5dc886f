// The conditions of an object.
import type { Condition } from '../api/objects';
import { conditionTone } from '../derive/tones';
import { Ago, Empty, State } from './basics';
import { Table } from './table';

export function Conditions({ conditions }: { conditions: Condition[] }) {
  if (conditions.length === 0) return <Empty>No conditions yet.</Empty>;
  return (
    <Table
      label="Conditions"
      rows={conditions}
      keyOf={(condition) => condition.type}
      columns={[
        {
          title: 'Condition',
          cell: (condition) => (
            <State tone={conditionTone(condition)}>
              {condition.type}={condition.status}
            </State>
          ),
        },
        { title: 'Reason', cell: (condition) => condition.reason },
        { title: 'Message', cell: (condition) => condition.message ?? '' },
        { title: 'Since', cell: (condition) => <Ago time={condition.lastTransitionTime} /> },
      ]}
    />
  );
}
