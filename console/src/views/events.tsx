// The events of the last hour, with a filter.
import { matchesText, newestFirst } from '../derive/timeline';
import { Ago, Empty, Loading, ObjectLink, PageTitle, State } from '../parts/basics';
import { Table } from '../parts/table';
import { WordFilter } from '../parts/word-filter';
import type { Route } from '../router';
import { useObjects } from '../state/cluster';

export function EventsView({ route }: { route: Route }) {
  const events = useObjects('events');
  if (events === undefined) return <Loading />;
  const filter = route.parameters.get('filter') ?? '';
  const shown = newestFirst(events.filter((event) => matchesText(event, filter)));
  return (
    <>
      <PageTitle title="Events" />
      <div class="filters" role="search">
        <WordFilter route={route} placeholder="Filter by object, reason or message" />
      </div>
      {shown.length === 0 ? (
        <Empty>{events.length === 0 ? 'No events in the last hour.' : 'No event matches the filter.'}</Empty>
      ) : (
        <Table
          label="Events"
          rows={shown}
          keyOf={(event) => event.metadata.uid}
          columns={[
            { title: 'Last seen', cell: (event) => <Ago time={event.lastTimestamp ?? event.firstTimestamp} /> },
            { title: 'Type', cell: (event) => <State tone={event.type === 'Warning' ? 'warn' : 'idle'}>{event.type ?? 'Normal'}</State> },
            { title: 'Object', cell: (event) => <ObjectLink kind={event.involvedObject.kind ?? ''} name={event.involvedObject.name ?? ''} /> },
            { title: 'Reason', cell: (event) => event.reason ?? '' },
            { title: 'Message', cell: (event) => <span class="message">{event.message ?? ''}</span> },
            { title: 'Count', numeric: true, cell: (event) => event.count ?? 1 },
            { title: 'Source', cell: (event) => event.source?.component ?? event.reportingComponent ?? '' },
          ]}
        />
      )}
    </>
  );
}
