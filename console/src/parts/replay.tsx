// The controls of the replay: a slider over the recorded time, steps between changes, and the changes before the chosen time.
import { useEffect, useState } from 'preact/hooks';
import type { PlacementHistory } from '../api/objects';
import { changesUntil, describe, nextChange } from '../derive/replay';
import { durationText } from '../derive/time';

/** Number of changes that are listed. */
const MAX_LISTED_CHANGES = 6;
/** Replayed milliseconds for each millisecond while the replay plays. */
const SPEED = 60;
const FRAME_MILLISECONDS = 200;

interface ReplayProps {
  history: PlacementHistory;
  /** Chosen time, in milliseconds since 1970. */
  time: number;
  change: (time: number) => void;
  end: () => void;
}

/** Returns a time as the clock of the browser shows it. */
function clockText(time: number): string {
  return new Date(time).toLocaleTimeString('en-GB');
}

export function Replay({ history, time, change, end }: ReplayProps) {
  const [isPlaying, setIsPlaying] = useState(false);
  const last = Date.parse(history.at);
  const first = Math.min(last, Date.parse(history.since ?? history.at));
  useEffect(() => {
    if (!isPlaying) return undefined;
    const timer = setInterval(() => {
      const next = Math.min(last, time + FRAME_MILLISECONDS * SPEED);
      change(next);
      if (next === last) setIsPlaying(false);
    }, FRAME_MILLISECONDS);
    return () => clearInterval(timer);
  }, [isPlaying, time, last]);
  const step = (direction: 1 | -1) => {
    const next = nextChange(history.changes, time, direction);
    if (next !== undefined) change(next);
  };
  const recent = changesUntil(history.changes, time, MAX_LISTED_CHANGES);
  const text = `${clockText(time)}, ${durationText((last - time) / 1000)} ago`;
  return (
    <section class="replay" aria-label="Replay">
      <div class="replay-bar">
        <button type="button" onClick={() => setIsPlaying(!isPlaying)}>
          {isPlaying ? 'Pause' : 'Play'}
        </button>
        <button type="button" disabled={nextChange(history.changes, time, -1) === undefined} onClick={() => step(-1)}>
          Previous change
        </button>
        <label class="replay-slider">
          <span class="hidden-text">Time of the replay</span>
          <input
            type="range"
            min={first}
            max={last}
            // With a fixed step, the slider would end up to a step early, and never show the last changes.
            step="any"
            value={time}
            aria-valuetext={text}
            onInput={(event) => {
              setIsPlaying(false);
              change(Math.round(Number(event.currentTarget.value)));
            }}
          />
        </label>
        <button type="button" disabled={nextChange(history.changes, time, 1) === undefined} onClick={() => step(1)}>
          Next change
        </button>
        <span class="number replay-time" role="status">
          {text}
        </span>
        <button type="button" class="primary" onClick={end}>
          End the replay
        </button>
      </div>
      <p class="quiet">
        {history.changes.length === 0
          ? `Nothing has changed since ${clockText(first)}.`
          : `${history.changes.length} changes since ${clockText(first)}. A controller records them from its start, for at most an hour.`}
      </p>
      {recent.length > 0 && (
        <ul class="replay-changes" aria-label="Changes before this time">
          {recent.map((item, index) => (
            <li key={`${item.time} ${item.kind} ${item.name} ${index}`}>
              <time class="number quiet" dateTime={item.time}>
                {clockText(Date.parse(item.time))}
              </time>{' '}
              {describe(item)}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
