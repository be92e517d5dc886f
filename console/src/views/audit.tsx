// The audit log of a controller, for admins: newest records first, with filters and pages.
import { useEffect, useState } from 'preact/hooks';
import { client, messageOf } from '../api/client';
import type { AuditPage } from '../api/objects';
import type { Tone } from '../derive/headline';
import { Ago, CommandLine, Empty, Loading, ObjectLink, PageTitle, State } from '../parts/basics';
import { Icon } from '../parts/icon';
import { Table } from '../parts/table';
import { setParameters, type Route } from '../router';
import { overview, usePolled } from '../state/cluster';
import { KIND_NAMES } from '../api/objects';

type Record = AuditPage['items'][number];

const PATH = '/apis/hactl.io/v1/audit';
const FILTERS = ['user', 'resource', 'name', 'outcome'] as const;
const OUTCOMES = ['Done', 'Refused', 'Failed'];
/** Waiting time after the last character of a filter. */
const DELAY_MILLISECONDS = 250;

function outcomeTone(outcome: string): Tone {
  return outcome === 'Done' ? 'ok' : outcome === 'Refused' ? 'warn' : 'bad';
}

type Reading = { phase: 'loading' } | { phase: 'failed'; message: string } | { phase: 'known'; page: AuditPage; items: Record[] };

/** Returns the query of the filters in the address. */
function queryOf(route: Route): string {
  const query = new URLSearchParams();
  for (const name of FILTERS) {
    const value = route.parameters.get(name) ?? '';
    if (value !== '') query.set(name, value);
  }
  return query.toString();
}

export function AuditView({ route }: { route: Route }) {
  const controllers = usePolled(overview).value?.controllers ?? [];
  const [reading, setReading] = useState<Reading>({ phase: 'loading' });
  const chosen = controllers.find((controller) => controller.id === route.parameters.get('controller'));
  const query = queryOf(route);
  const base = `${chosen?.url ?? ''}${PATH}`;
  const [count, setCount] = useState(0);
  useEffect(() => {
    let current = true;
    const timer = setTimeout(() => {
      client.get<AuditPage>(`${base}?${query}`).then(
        (page) => current && setReading({ phase: 'known', page, items: page.items }),
        (error: unknown) => current && setReading({ phase: 'failed', message: messageOf(error) }),
      );
    }, DELAY_MILLISECONDS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [base, query, count]);
  const readMore = async (page: AuditPage, items: Record[]) => {
    try {
      const next = await client.get<AuditPage>(`${base}?${query}&continue=${page.continue ?? ''}`);
      setReading({ phase: 'known', page: next, items: [...items, ...next.items] });
    } catch (error) {
      setReading({ phase: 'failed', message: messageOf(error) });
    }
  };
  const set = (name: string) => (event: { currentTarget: HTMLInputElement | HTMLSelectElement }) =>
    setParameters(route, { [name]: event.currentTarget.value });
  const value = (name: string) => route.parameters.get(name) ?? '';
  return (
    <>
      <PageTitle title="Audit">
        <button type="button" onClick={() => setCount(count + 1)}>
          Read again
        </button>
      </PageTitle>
      <p class="quiet">
        Every write and every refusal that one controller has answered. Each controller has an audit file of its own.
      </p>
      <div class="filters" role="search">
        <label class="inline">
          Controller
          <select value={value('controller')} onChange={set('controller')}>
            <option value="">of this page</option>
            {controllers.map((controller) => (
              <option key={controller.id} value={controller.id}>
                {controller.id}
              </option>
            ))}
          </select>
        </label>
        <label class="inline">
          User
          <input type="search" value={value('user')} onInput={set('user')} />
        </label>
        <label class="inline">
          Kind
          <select value={value('resource')} onChange={set('resource')}>
            <option value="">all</option>
            {Object.keys(KIND_NAMES).map((plural) => (
              <option key={plural} value={plural}>
                {plural}
              </option>
            ))}
          </select>
        </label>
        <label class="inline">
          Name
          <input type="search" value={value('name')} onInput={set('name')} />
        </label>
        <label class="inline">
          Outcome
          <select value={value('outcome')} onChange={set('outcome')}>
            <option value="">all</option>
            {OUTCOMES.map((outcome) => (
              <option key={outcome} value={outcome}>
                {outcome}
              </option>
            ))}
          </select>
        </label>
      </div>
      {reading.phase === 'loading' && <Loading />}
      {reading.phase === 'failed' && (
        <p class="state bad" role="alert">
          <Icon name="bad" /> {reading.message}
        </p>
      )}
      {reading.phase === 'known' && <Records reading={reading} readMore={readMore} />}
    </>
  );
}

interface RecordsProps {
  reading: Extract<Reading, { phase: 'known' }>;
  readMore: (page: AuditPage, items: Record[]) => Promise<void>;
}

/** Returns the kind of an object for links. */
function kindOf(record: Record): string {
  return KIND_NAMES[record.resource as keyof typeof KIND_NAMES] ?? '';
}

function Records({ reading: { page, items }, readMore }: RecordsProps) {
  return (
    <>
      {items.length === 0 ? (
        <Empty>{page.continue == null ? 'No record matches the filters.' : 'No record in the newest part of the file matches.'}</Empty>
      ) : (
        <Table
          label="Audit records"
          rows={items}
          limit={items.length}
          keyOf={(record) => `${items.indexOf(record)}`}
          columns={[
            { title: 'Time', cell: (record) => <Ago time={record.time} /> },
            { title: 'Outcome', cell: (record) => <State tone={outcomeTone(record.outcome)}>{record.outcome}</State> },
            { title: 'User', cell: (record) => record.user || 'not identified' },
            { title: 'Request', cell: (record) => `${record.verb}${record.dryRun ? ' (dry run)' : ''}` },
            { title: 'Kind', cell: (record) => record.path ?? [record.resource, record.subresource].filter((part) => part !== '').join('/') },
            { title: 'Name', cell: (record) => <ObjectLink kind={kindOf(record)} name={record.name} /> },
            { title: 'Status', numeric: true, cell: (record) => record.code },
            { title: 'Manager', cell: (record) => record.fieldManager },
            { title: 'Source', cell: (record) => record.source },
          ]}
        />
      )}
      <div class="buttons left">
        <button type="button" disabled={page.continue == null} onClick={() => void readMore(page, items)}>
          Older records
        </button>
        <span class="quiet" role="status">
          {items.length} records of controller {page.controller}
        </span>
      </div>
      <CommandLine command={`tail -n 100 ${page.file}`} />
    </>
  );
}
