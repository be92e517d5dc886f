// Whether the shown values are current: the time since the last answer, and the cause if there is none.
import { useEffect, useState } from 'preact/hooks';
import { client } from '../api/client';
import { onStateChange, openCollections, overview } from './cluster';

/** Age of the last answer after which values count as stale. */
export const STALE_AFTER_MILLISECONDS = 4000;

export interface Freshness {
  /** Seconds since the values were current; undefined if they are current. */
  staleSeconds: number | undefined;
  cause: string;
  /** Address of the controller that answers instead of the one that serves the page. */
  otherController: string | undefined;
}

/** Facts from which freshness is computed. */
export interface Contact {
  now: number;
  /** Time of the last answer, or of the start if there was none. */
  lastAnswer: number;
  lastError: string | undefined;
  interrupted: { plural: string; message: string }[];
  otherController: string | undefined;
}

/** Computes freshness. A short interruption of a watch is not reported while the overview is current. */
export function freshness(contact: Contact, staleSince: number | undefined): Freshness {
  const { now, lastAnswer, lastError, interrupted, otherController } = contact;
  const age = now - lastAnswer;
  if (age > STALE_AFTER_MILLISECONDS) {
    const cause = lastError ?? 'the controller does not answer in time';
    return { staleSeconds: Math.floor(age / 1000), cause, otherController };
  }
  const [first] = interrupted;
  if (first !== undefined && staleSince !== undefined && now - staleSince > STALE_AFTER_MILLISECONDS) {
    const staleSeconds = Math.floor((now - staleSince) / 1000);
    return { staleSeconds, cause: `no updates of ${first.plural}: ${first.message}`, otherController };
  }
  return { staleSeconds: undefined, cause: '', otherController };
}

function readContact(start: number): Contact {
  const { at, error } = overview.state.value;
  const interrupted = openCollections()
    .filter(([, state]) => !state.live && state.error !== undefined)
    .map(([plural, state]) => ({ plural, message: state.error?.message ?? '' }));
  const { isOwn, origin } = client.controllers;
  return {
    now: performance.now(),
    lastAnswer: Math.max(at, start),
    lastError: error?.message,
    interrupted,
    otherController: isOwn ? undefined : origin,
  };
}

/** Returns the freshness, updated every second. */
export function useFreshness(): Freshness {
  const [result, setResult] = useState<Freshness>({ staleSeconds: undefined, cause: '', otherController: undefined });
  useEffect(() => {
    let staleSince: number | undefined;
    const start = performance.now();
    const update = () => {
      const contact = readContact(start);
      if (contact.interrupted.length === 0) staleSince = undefined;
      else staleSince ??= contact.now;
      const next = freshness(contact, staleSince);
      setResult((last) =>
        last.staleSeconds === next.staleSeconds &&
        last.cause === next.cause &&
        last.otherController === next.otherController
          ? last
          : next,
      );
    };
    const timer = setInterval(update, 500);
    const end = onStateChange(update);
    return () => {
      clearInterval(timer);
      end();
    };
  }, []);
  return result;
}
