// Events below each other, newest first.
import type { ClusterEvent } from '../api/objects';
import { newestFirst } from '../derive/timeline';
import { Ago, Empty, ObjectLink } from './basics';
import { Icon } from './icon';

export function Timeline({ events, limit, empty }: { events: ClusterEvent[]; limit: number; empty: string }) {
  if (events.length === 0) return <Empty>{empty}</Empty>;
  return (
    <ol class="timeline">
      {newestFirst(events)
        .slice(0, limit)
        .map((event) => (
          <li key={event.metadata.uid} class={event.type === 'Warning' ? 'warning-event' : undefined}>
            <span class="mark">
              {event.type === 'Warning' ? <Icon name="warn" label="Warning" /> : <Icon name="idle" label="Normal" />}
            </span>
            <div>
              <span class="quiet">
                <ObjectLink kind={event.involvedObject.kind ?? ''} name={event.involvedObject.name ?? ''} />
                {' · '}
                {event.reason}
                {' · '}
                <Ago time={event.lastTimestamp ?? event.firstTimestamp} />
              </span>
              <p>{event.message}</p>
            </div>
          </li>
        ))}
    </ol>
  );
}
