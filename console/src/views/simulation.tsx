// The interactive simulator: its clock, a switch for each part that can fail, a tour of failures, and the timeline.
import { useState } from 'preact/hooks';
import { failures } from '../derive/failures';
import { Card, Empty, Loading, ObjectLink, PageTitle, State } from '../parts/basics';
import { Icon } from '../parts/icon';
import { Table } from '../parts/table';
import { usePolled } from '../state/cluster';
import { sendSimulatorAction, changeClock, loadScenario, simulation, type ClockChange, type SimulatedMachine, type SimulationState } from '../state/simulation';

const SPEEDS = [0.1, 1, 5, 20, 100, 1000];
/** Number of lines of the timeline that the view shows. */
const LINES = 60;

type Run = (change: Promise<void>) => void;

export function SimulationView() {
  const { value, error } = usePolled(simulation);
  const [problem, setProblem] = useState('');
  if (value === undefined) return error === undefined ? <Loading /> : <Empty>{error.message}</Empty>;
  const run: Run = (change) => {
    setProblem('');
    change.catch((failure: unknown) => setProblem(failure instanceof Error ? failure.message : String(failure)));
  };
  return (
    <>
      <PageTitle title="Simulation">
        <Verdict state={value} />
      </PageTitle>
      {problem !== '' && (
        <div class="banner bad" role="alert">
          <Icon name="warn" />
          <span>{problem}</span>
        </div>
      )}
      <div class="grid">
        <ClockCard state={value} run={run} />
        <Machines state={value} run={run} />
        <Tour state={value} run={run} />
        <Card title="Timeline" wide>
          <Timeline lines={value.timeline} />
        </Card>
        <Scenario state={value} run={run} />
      </div>
    </>
  );
}

function Verdict({ state }: { state: SimulationState }) {
  if (state.violations.length > 0) return <State tone="bad">Violated invariants: {state.violations.length}</State>;
  return <State tone="ok">No service ran twice</State>;
}

/** Returns a virtual time, such as 1:02:03.4. */
export function clockText(milliseconds: number): string {
  const pad = (value: number) => String(value).padStart(2, '0');
  const total = Math.floor(milliseconds / 1000);
  const [hours, minutes, seconds] = [Math.floor(total / 3600), Math.floor(total / 60) % 60, total % 60];
  const tenths = Math.floor(milliseconds / 100) % 10;
  return `${hours > 0 ? `${hours}:${pad(minutes)}` : minutes}:${pad(seconds)}.${tenths}`;
}

export function PauseButton({ state, run }: { state: SimulationState; run: Run }) {
  return (
    <button type="button" onClick={() => run(changeClock({ isPaused: !state.isPaused }))}>
      {state.isPaused ? 'Resume' : 'Pause'}
    </button>
  );
}

function ClockCard({ state, run }: { state: SimulationState; run: Run }) {
  const [furthest, setFurthest] = useState(state.elapsedMs);
  if (state.elapsedMs > furthest) setFurthest(state.elapsedMs);
  const change = (values: ClockChange) => run(changeClock(values));
  return (
    <Card title="Clock" wide aside={state.isBehind ? <State tone="warn">slower than requested</State> : undefined}>
      <div class="toolbar">
        <strong class="number clock">{clockText(state.elapsedMs)}</strong>
        <PauseButton state={state} run={run} />
        <button type="button" onClick={() => change({ isPaused: true, nextEvent: true })}>
          Next event
        </button>
        <label class="inline">
          Speed{' '}
          <select value={String(state.speed)} onChange={(event) => change({ speed: Number(event.currentTarget.value) })}>
            {SPEEDS.map((speed) => (
              <option key={speed} value={String(speed)}>
                {speed}×
              </option>
            ))}
          </select>
        </label>
      </div>
      <label class="scrub">
        <span class="hidden-text">Time</span>
        <input
          type="range"
          min="0"
          max={furthest}
          step="100"
          value={state.elapsedMs}
          aria-valuetext={clockText(state.elapsedMs)}
          onChange={(event) => change({ isPaused: true, elapsedMs: Number(event.currentTarget.value) })}
        />
      </label>
      <p class="quiet">Drag the slider to an earlier time. The next action discards all later steps.</p>
    </Card>
  );
}

/** The parts of a machine with a switch, each with the action to which `on` or `off` is added. */
const SWITCHES: { title: string; name: string; action: (machine: string) => string; isOn: (machine: SimulatedMachine) => boolean }[] = [
  { title: 'Power', name: 'Power', action: (machine) => `power ${machine}`, isOn: (machine) => machine.hasPower },
  { title: 'Network', name: 'Network', action: (machine) => `network ${machine}`, isOn: (machine) => machine.hasNetwork },
  { title: 'etcd', name: 'Link to etcd', action: (machine) => `link ${machine} store`, isOn: (machine) => machine.reachesEtcd },
  { title: 'Peers', name: 'Links to peers', action: (machine) => `link ${machine} peers`, isOn: (machine) => machine.reachesPeers },
  {
    title: 'Migration',
    name: 'Migration network',
    action: (machine) => `migration-network ${machine}`,
    isOn: (machine) => machine.hasMigrationNetwork,
  },
];

/** A switch that shows the state of a part. */
function Switch({ label, isOn, action, run }: { label: string; isOn: boolean; action: string; run: Run }) {
  return (
    <button
      type="button"
      role="switch"
      class="switch"
      aria-checked={isOn}
      aria-label={label}
      onClick={() => run(sendSimulatorAction(`${action} ${isOn ? 'off' : 'on'}`))}
    >
      {isOn ? 'On' : 'Off'}
    </button>
  );
}

function Machines({ state, run }: { state: SimulationState; run: Run }) {
  return (
    <Card
      title="Machines"
      wide
      aside={
        <span class="inline">
          <State tone={state.isEtcdAvailable ? 'ok' : 'bad'}>{state.isEtcdAvailable ? 'etcd answers' : 'etcd does not answer'}</State>
          <button type="button" onClick={() => run(sendSimulatorAction('store outage 30s'))}>
            etcd outage of 30 s
          </button>
        </span>
      }
    >
      <Table
        label="Switches of each machine"
        rows={state.machines}
        keyOf={(machine) => machine.name}
        columns={[
          {
            title: 'Machine',
            cell: (machine) => (
              <>
                <ObjectLink kind="node" name={machine.name} />
                {machine.isLeader && <span class="quiet"> leader</span>}
              </>
            ),
          },
          {
            title: 'Services',
            cell: (machine) => (
              <span class="buttons left crashes">
                {machine.services.map((service) => (
                  <button type="button" class="plain" key={service} title={`crash ${service}`} onClick={() => run(sendSimulatorAction(`crash ${service}`))}>
                    {service}
                  </button>
                ))}
              </span>
            ),
          },
          ...SWITCHES.map(({ title, name, action, isOn }) => ({
            title,
            cell: (machine: SimulatedMachine) => (
              <Switch label={`${name} of ${machine.name}`} isOn={isOn(machine)} action={action(machine.name)} run={run} />
            ),
          })),
          { title: 'Agent', cell: (machine) => <Process kind="agent" machine={machine} state={machine.agent} run={run} /> },
          {
            title: 'Controller',
            cell: (machine) =>
              machine.controller === null ? (
                <span class="quiet">none</span>
              ) : (
                <Process kind="controller" machine={machine} state={machine.controller} run={run} />
              ),
          },
          { title: 'Watchdog', cell: (machine) => <SimulatedWatchdog machine={machine} run={run} /> },
        ]}
      />
      <p class="quiet">Select a service to crash its process. A machine that was never on joins the cluster when it gets power.</p>
    </Card>
  );
}

const PROCESS_ACTIONS = { Running: 'hang', Hung: 'resume', Stopped: 'start' } as const;

function Process({ kind, machine, state, run }: { kind: string; machine: SimulatedMachine; state: SimulatedMachine['agent']; run: Run }) {
  if (!machine.isUp) return <span class="quiet">–</span>;
  const verb = PROCESS_ACTIONS[state];
  return (
    <span class="process">
      <State tone={state === 'Running' ? 'ok' : 'bad'}>{state}</State>
      <button type="button" class="plain" aria-label={`${verb} the ${kind} of ${machine.name}`} onClick={() => run(sendSimulatorAction(`${kind} ${machine.name} ${verb}`))}>
        {verb}
      </button>
      {state === 'Running' && (
        <button type="button" class="plain" aria-label={`kill the ${kind} of ${machine.name}`} onClick={() => run(sendSimulatorAction(`${kind} ${machine.name} kill`))}>
          kill
        </button>
      )}
    </span>
  );
}

function SimulatedWatchdog({ machine, run }: { machine: SimulatedMachine; run: Run }) {
  if (!machine.isUp) return <span class="quiet">–</span>;
  const verb = machine.hasWatchdogDaemon ? 'kill' : 'start';
  return (
    <span class="process">
      {machine.watchdogMs === null ? (
        <State tone="idle">not armed</State>
      ) : (
        <State tone={machine.hasWatchdogDaemon ? 'ok' : 'warn'}>
          <span class="number">{(machine.watchdogMs / 1000).toFixed(1)} s</span>
        </State>
      )}
      <button type="button" class="plain" aria-label={`${verb} the watchdog daemon of ${machine.name}`} onClick={() => run(sendSimulatorAction(`watchdogd ${machine.name} ${verb}`))}>
        {verb}
      </button>
    </span>
  );
}

function Tour({ state, run }: { state: SimulationState; run: Run }) {
  // The texts keep their machines while the tour is shown, although services move.
  const [tour] = useState(() => failures(state.machines));
  return (
    <Card title="Tour of failures" wide>
      <ol class="tour">
        {tour.map((failure) => (
          <li key={failure.title}>
            <h3>{failure.title}</h3>
            <p>{failure.explanation}</p>
            <span class="buttons left">
              <button type="button" onClick={() => run(sendSimulatorAction(failure.action))}>
                <code>{failure.action}</code>
              </button>
              {failure.repair !== undefined && (
                <button type="button" class="plain" onClick={() => run(sendSimulatorAction(failure.repair ?? ''))}>
                  <code>{failure.repair}</code>
                </button>
              )}
            </span>
          </li>
        ))}
      </ol>
    </Card>
  );
}

function Timeline({ lines }: { lines: string[] }) {
  if (lines.length === 0) return <Empty>Nothing has happened.</Empty>;
  return (
    <div class="log" role="log" aria-label="Timeline" tabIndex={0}>
      <pre>{[...lines.slice(-LINES)].reverse().join('\n')}</pre>
    </div>
  );
}

function Scenario({ state, run }: { state: SimulationState; run: Run }) {
  const [action, setAction] = useState('');
  const load = (files: FileList | null) => {
    const file = files?.[0];
    if (file !== undefined) run(file.text().then(loadScenario));
  };
  return (
    <Card title="Scenario" wide>
      <form
        class="toolbar"
        onSubmit={(event) => {
          event.preventDefault();
          run(sendSimulatorAction(action));
        }}
      >
        <label class="inline">
          Action{' '}
          <input type="text" value={action} placeholder="suspend node1 30s" onInput={(event) => setAction(event.currentTarget.value)} />
        </label>
        <button type="submit" disabled={action.trim() === ''}>
          Run
        </button>
      </form>
      <p>
        <a href="/simulation/scenario" download="scenario.yaml">
          Save as a scenario
        </a>{' '}
        <span class="quiet">
          <code>hactl simulate scenario.yaml</code> repeats the same steps, and checks that every service ends where it is now.
        </span>
      </p>
      <p>
        <label>
          Load a scenario <input type="file" accept=".yaml,.yml" onChange={(event) => load(event.currentTarget.files)} />
        </label>
      </p>
      {state.file !== null && <p class="quiet">Saved in {state.file}.</p>}
      {state.saveError !== null && <p role="alert">{state.saveError}</p>}
      {state.steps.length === 0 ? (
        <Empty>No steps so far.</Empty>
      ) : (
        <ol class="steps">
          {state.steps.map((step, index) => (
            <li key={`${index} ${step.at}`} class={index < state.executedSteps ? undefined : 'quiet'}>
              {step.at !== undefined && <span class="number">{step.at}</span>} <code>{stepText(step.do)}</code>
            </li>
          ))}
        </ol>
      )}
    </Card>
  );
}

/** Returns the actions of a step as text. */
export function stepText(action: unknown): string {
  if (typeof action === 'string') return action;
  if (Array.isArray(action)) return action.map(stepText).join('; ');
  if (typeof action === 'object' && action !== null && 'write' in action) {
    return `write ${Object.keys(action.write as Record<string, unknown>).join(', ')}`;
  }
  return action === undefined ? '' : JSON.stringify(action);
}
