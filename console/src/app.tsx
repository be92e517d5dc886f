// The page around every view: navigation, freshness, sign-in, keys and the palette.
import { useEffect, useRef, useState } from 'preact/hooks';
import { ActionLayer } from './actions/run';
import { client } from './api/client';
import { SIMULATION_PATH, useNavigationEntries, type NavigationEntry } from './navigation-entries';
import { Icon } from './parts/icon';
import { KeyHelp } from './parts/keys';
import { Palette } from './parts/palette';
import { useRoute, type Route } from './router';
import { overview, usePolled } from './state/cluster';
import { useFreshness, type Freshness } from './state/freshness';
import { checkSession, session, signOut, type User } from './state/session';
import { useSignal } from './state/signal';
import { simulation, useIsSimulation } from './state/simulation';
import { nextTheme, setTheme, theme } from './theme';
import { AuditView } from './views/audit';
import { CapacityView } from './views/capacity';
import { ClusterView } from './views/cluster';
import { EventsView } from './views/events';
import { FencingView } from './views/fencing';
import { NodeView } from './views/node';
import { NodesView } from './views/nodes';
import { OperationsView } from './views/operations';
import { OverviewView } from './views/overview';
import { PlacementView } from './views/placement';
import { ResourceView } from './views/resource';
import { ResourcesView } from './views/resources';
import { RuleView, RulesView } from './views/rules';
import { SignIn, Unreachable } from './views/sign-in';
import { clockText, PauseButton, SimulationView } from './views/simulation';

function View({ route }: { route: Route }) {
  const [first = '', second, third] = route.parts;
  switch (first) {
    case 'placement':
      return <PlacementView route={route} />;
    case 'resources':
      return second === undefined ? <ResourcesView route={route} /> : <ResourceView key={second} name={second} />;
    case 'nodes':
      return second === undefined ? <NodesView /> : <NodeView key={second} name={second} />;
    case 'rules':
      return second === undefined ? <RulesView /> : <RuleView key={`${second}/${third}`} kind={second} name={third ?? ''} />;
    case 'capacity':
      return <CapacityView />;
    case 'fencing':
      return <FencingView />;
    case 'cluster':
      return <ClusterView />;
    case 'events':
      return <EventsView route={route} />;
    case 'operations':
      return <OperationsView route={route} />;
    case 'audit':
      return <AuditView route={route} />;
    case 'simulation':
      return <SimulationView />;
    default:
      return <OverviewView />;
  }
}

export function App() {
  const state = useSignal(session);
  useEffect(() => {
    void checkSession();
  }, []);
  switch (state.phase) {
    case 'checking':
      return (
        <main class="alone" aria-busy="true">
          <p role="status">Connecting…</p>
        </main>
      );
    case 'signedOut':
      return <SignIn message={state.message} />;
    case 'unreachable':
      return <Unreachable message={state.message} />;
    default:
      return <Shell user={state.user} />;
  }
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches('input, textarea, select, [contenteditable]');
}

type Overlay = 'palette' | 'keys' | undefined;

/** Opens overlays and views by keys: `/`, Ctrl-K, `?`, and `g` followed by the key of a view. */
function useKeys(entries: NavigationEntry[], open: (overlay: Overlay) => void): void {
  const prefix = useRef(0);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault();
        open('palette');
        return;
      }
      if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector('dialog[open]') !== null) return;
      if (event.key === '/') {
        event.preventDefault();
        open('palette');
      } else if (event.key === '?') {
        open('keys');
      } else if (event.key === 'g') {
        prefix.current = event.timeStamp;
      } else if (event.timeStamp - prefix.current < 1500) {
        const entry = entries.find((item) => item.key === event.key);
        if (entry !== undefined) location.hash = `#/${entry.path}`;
        prefix.current = 0;
      }
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [entries, open]);
}

function Shell({ user }: { user: User }) {
  const route = useRoute();
  const fresh = useFreshness();
  const [overlay, setOverlay] = useState<Overlay>(undefined);
  const entries = useNavigationEntries();
  useKeys(entries, setOverlay);
  const main = useRef<HTMLElement>(null);
  const path = route.parts.join('/');
  const first = useRef(true);
  useEffect(() => {
    const entry = entries.find((item) => item.path === (route.parts[0] ?? ''));
    const [, ...rest] = route.parts;
    document.title = `${[...rest.slice(-1), entry?.title ?? 'Overview'].join(' – ')} – hactl`;
    // The heading gets the focus, so that a screen reader reads the new view.
    if (!first.current) main.current?.querySelector('h1')?.focus({ preventScroll: true });
    first.current = false;
    scrollTo(0, 0);
  }, [path]);
  return (
    <div class={fresh.staleSeconds === undefined ? 'shell' : 'shell stale'}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>
        Skip to the content
      </a>
      <Header user={user} fresh={fresh} open={setOverlay} />
      <Navigation current={route.parts[0] ?? ''} />
      <div class="content">
        <StaleBanner fresh={fresh} />
        <main id="main" ref={main} tabIndex={-1}>
          <View route={route} />
        </main>
      </div>
      {overlay === 'palette' && <Palette onClose={() => setOverlay(undefined)} />}
      {overlay === 'keys' && <KeyHelp onClose={() => setOverlay(undefined)} />}
      <ActionLayer />
    </div>
  );
}

function Header({ user, fresh, open }: { user: User; fresh: Freshness; open: (overlay: Overlay) => void }) {
  const { value } = usePolled(overview);
  return (
    <header class="top">
      <a class="brand" href="#/" aria-label="hactl, overview">
        <svg viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">
          <rect width="32" height="32" rx="8" />
          <path d="M9 23V9m0 7h14m0-7v14" />
        </svg>
        <span>{value?.cluster ?? 'hactl'}</span>
      </a>
      <span class={fresh.staleSeconds === undefined ? 'live' : 'live not'} role="status">
        <i aria-hidden="true" />
        {fresh.staleSeconds === undefined ? 'Live' : 'Stale'}
      </span>
      <SimulationBar />
      <span class="space" />
      <button type="button" class="search" onClick={() => open('palette')} aria-keyshortcuts="/ Control+K">
        <Icon name="search" />
        <span>Search views and actions</span>
        <kbd>/</kbd>
      </button>
      <button type="button" class="plain" onClick={() => open('keys')} aria-label="Keys">
        <Icon name="help" />
      </button>
      <ThemeButton />
      <UserMenu user={user} />
    </header>
  );
}

/** The clock of a simulated cluster, in every view. */
function SimulationBar() {
  return useIsSimulation() ? <SimulationClock /> : null;
}

function SimulationClock() {
  const { value } = usePolled(simulation);
  if (value === undefined) return null;
  return (
    <span class="simulation-bar">
      <a class="number" href={`#/${SIMULATION_PATH}`}>
        <span class="wide-only">Simulated: </span>
        {clockText(value.elapsedMs)}
      </a>
      <span class="wide-only">
        <PauseButton state={value} run={(change) => void change.catch(() => undefined)} />
      </span>
    </span>
  );
}

function ThemeButton() {
  const chosen = useSignal(theme);
  return (
    <button
      type="button"
      class="plain"
      aria-label={`Theme: ${chosen}. Change to ${nextTheme(chosen)}`}
      onClick={() => setTheme(nextTheme(chosen))}
    >
      <Icon name={chosen} />
    </button>
  );
}

function UserMenu({ user }: { user: User }) {
  return (
    <details class="menu">
      <summary aria-label={`User ${user.name}`}>
        <Icon name="user" />
        <span class="wide-only">{user.name}</span>
      </summary>
      <div class="menu-body">
        <p>
          <strong>{user.name}</strong>
          <br />
          <span class="quiet">{user.groups.join(', ') || 'no groups'}</span>
        </p>
        {client.token === '' ? (
          <p class="quiet">Signed in by the connection.</p>
        ) : (
          <button type="button" onClick={signOut}>
            Sign out
          </button>
        )}
      </div>
    </details>
  );
}

function Navigation({ current }: { current: string }) {
  const { value } = usePolled(overview);
  const entries = useNavigationEntries();
  const problems = value?.problems.length ?? 0;
  return (
    <nav aria-label="Views">
      {entries.map((entry) => (
        <a
          key={entry.path}
          href={`#/${entry.path}`}
          aria-current={entry.path === current ? 'page' : undefined}
        >
          <Icon name={entry.icon} />
          <span>{entry.title}</span>
          {entry.path === '' && problems > 0 && (
            <span class="badge">
              {problems}
              <span class="hidden-text"> problems</span>
            </span>
          )}
        </a>
      ))}
    </nav>
  );
}

function StaleBanner({ fresh }: { fresh: Freshness }) {
  if (fresh.staleSeconds === undefined) {
    return fresh.otherController === undefined ? null : (
      <div class="banner idle" role="status">
        <Icon name="warn" />
        <span>
          The controller of this page does not answer. Data comes from <strong>{fresh.otherController}</strong>.
        </span>
      </div>
    );
  }
  return (
    <div class="banner bad" role="alert">
      <Icon name="warn" />
      <span>
        <strong>Data is {fresh.staleSeconds} s old.</strong> Cause: {fresh.cause}. Reconnecting automatically
        {client.controllers.count > 1 ? `, trying ${client.controllers.count} controllers` : ''}.
      </span>
    </div>
  );
}
