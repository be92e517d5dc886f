// Small parts that every view uses: states, cards, links, times, bars and the line of a command.
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Tone } from '../derive/headline';
import { durationText, secondsSince } from '../derive/time';
import { objectAddress } from '../router';
import { now } from '../state/clock';
import { Icon } from './icon';

/** A state as a word with a symbol; the color repeats the symbol. */
export function State({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return (
    <span class={`state ${tone}`}>
      <Icon name={tone} />
      {children}
    </span>
  );
}

interface CardProps {
  title: string;
  aside?: ComponentChildren;
  /** Whole width of the page, or two columns of it. */
  wide?: boolean;
  broad?: boolean;
  children: ComponentChildren;
}

export function Card(props: CardProps) {
  const width = props.wide === true ? ' wide' : props.broad === true ? ' broad' : '';
  return (
    <section class={`card${width}`}>
      <header>
        <h2>{props.title}</h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

export function PageTitle({ title, children }: { title: ComponentChildren; children?: ComponentChildren }) {
  return (
    <div class="page-title">
      <h1 tabIndex={-1}>{title}</h1>
      {children}
    </div>
  );
}

/** A link to the view of an object; plain text if the object has no view. */
export function ObjectLink({ kind, name }: { kind: string; name: string }) {
  const to = objectAddress(kind, name);
  return to === undefined ? <span>{name}</span> : <a href={to}>{name}</a>;
}

/** Renders the component again every second. */
export function useNow(): number {
  const [time, setTime] = useState(now());
  useEffect(() => {
    const timer = setInterval(() => setTime(now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return time;
}

/** The time since a timestamp; the title shows the timestamp itself. */
export function Ago({ time }: { time: string | null | undefined }) {
  const now = useNow();
  const age = secondsSince(time, now);
  if (age === undefined || time === null || time === undefined) return <span class="quiet">–</span>;
  return (
    <time class="number" dateTime={time} title={time}>
      {durationText(age)} ago
    </time>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Loading() {
  return (
    <p class="empty" role="status">
      Loading…
    </p>
  );
}

/** A bar of one amount in another. */
export function Bar({ label, used, total, text }: { label: string; used: number; total: number; text: string }) {
  const share = total > 0 ? Math.min(1, used / total) : 0;
  const tone = share > 0.9 ? 'bad' : share > 0.75 ? 'warn' : 'ok';
  return (
    <div class="bar">
      <span class="bar-label">{label}</span>
      <span class="bar-track" role="img" aria-label={`${label}: ${text}`}>
        <span class={`bar-fill ${tone}`} style={{ width: `${(share * 100).toFixed(1)}%` }} />
      </span>
      <span class="bar-text number">{text}</span>
    </div>
  );
}

/** A command line with a button that copies it. */
export function CommandLine({ command }: { command: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    void navigator.clipboard.writeText(command).then(() => {
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    });
  };
  return (
    <div class="command">
      <code>{command}</code>
      <button type="button" class="plain" onClick={copy} aria-label={`Copy ${command}`}>
        <Icon name={copied ? 'ok' : 'copy'} />
        <span aria-live="polite">{copied ? 'Copied' : 'Copy'}</span>
      </button>
    </div>
  );
}

/** Names and values. */
export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value ?? '–'}</dd>
        </div>
      ))}
    </dl>
  );
}
