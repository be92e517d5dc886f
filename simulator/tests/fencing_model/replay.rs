//! Replay of traces of simulated clusters as paths of the model: the possible states after each visible step.

use crate::action::{Action, AgentStep, Fault, LeaderStep, WatchdogStep};
use crate::bounds::{Bounds, Device};
use crate::configuration::Configuration;
use crate::hold::Event as HoldEvent;
use crate::model::Protocol;
use crate::node::{Phase, Service, Watchdog};
use crate::state::State;
use crate::store::index_of;
use crate::trace::{Event, Timed, Trace};
use crate::write::{Change, Write};
use ha_api_types::time::Millis;
use stateright::Model;
use std::collections::HashSet;

/// Length of one tick of the model, in milliseconds. Th and Ts must be multiples of it.
pub(crate) const TICK_MS: Millis = 250;

/// Returns the times of a trace in ticks. Two moments at a distance of x ticks are separated by ⌊x⌋ or ⌊x⌋ + 1
/// boundaries of ticks. Events **until** a time are therefore no later in the model, and waits **for** a time last at
/// least its integer part. Th and Ts are exact; the model's W is the integer part of the code's W. The part of W that
/// remains for the watchdog must still cover the longest time that its device takes.
pub(crate) fn bounds(trace: &Trace) -> Bounds {
    let ticks = |ms: Millis| i8::try_from(ms / TICK_MS).expect("a time of the model");
    let timings = &trace.timings;
    let exact = |ms: Millis| {
        assert_eq!(ms % TICK_MS, 0, "{ms} ms are not a multiple of a tick");
        ticks(ms)
    };
    let valid = exact(timings.heartbeat_valid_ms);
    let timeout = ticks(trace.fencing_delay_ms) - valid - 1;
    let bounds = Bounds {
        heartbeat_valid: valid,
        margin: exact(timings.stop_margin_ms),
        timeout,
        device: Device::Sliding,
    };
    let rate_error_ms =
        timings.watchdog_timeout_ms * Millis::from(timings.watchdog_rate_error_ppm) / 1_000_000;
    let longest_ms = timings.watchdog_timeout_ms + rate_error_ms + timings.watchdog_lateness_ms;
    assert!(
        u64::try_from(timeout).expect("a time to come") * TICK_MS >= longest_ms,
        "{bounds:?}, {longest_ms}"
    );
    bounds
}

/// Returns the configuration of which a trace must be a path. All steps and faults are enabled.
pub(crate) fn configuration(trace: &Trace, hold: bool) -> Configuration {
    Configuration {
        name: "replay",
        bounds: bounds(trace),
        candidates: trace.candidates,
        candidate_restarts: true,
        hold,
        agent_restarts: true,
        power_loss: true,
        idle_closes: true,
        crashes: true,
        commands: true,
        migration: true,
        leave: true,
        fence_device: true,
        symmetric: false,
        ..Configuration::SHORT
    }
}

/// The point at which a trace is not a path of the model.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Step that no state allows; `None`: a tick.
    pub(crate) step: Option<Timed>,
    /// Number of the step in the trace.
    pub(crate) number: usize,
    /// Time of the step, and one of the states before it.
    pub(crate) detail: String,
}

/// Replays a trace. Returns the largest number of possible states at one time.
pub(crate) fn replay(configuration: Configuration, steps: &[Timed]) -> Result<usize, Box<Refused>> {
    let model = Protocol { configuration };
    let mut states: HashSet<State> = model.init_states().into_iter().collect();
    let mut max_states = 0;
    let Some(first) = steps.first() else { return Ok(0) };
    let mut tick = first.at / TICK_MS;
    for (number, timed) in steps.iter().enumerate() {
        let refused = |states: &HashSet<State>, step, tick: Millis| {
            let sample = states.iter().next();
            let store = sample.map(|state| state.store);
            let nodes = sample.map(|state| state.nodes);
            let detail =
                format!("{} states at {} ms, one of them {store:?} {nodes:?}", states.len(), tick * TICK_MS);
            Box::new(Refused { step, number, detail })
        };
        while tick < timed.at / TICK_MS {
            tick += 1;
            let next = states_after(&model, &states, |action| *action == Action::Tick, |_| false);
            if next.is_empty() {
                return Err(refused(&states, None, tick));
            }
            states = next;
        }
        let next = after_event(&model, &states, timed.event);
        if next.is_empty() {
            return Err(refused(&states, Some(*timed), tick));
        }
        states = next;
        max_states = max_states.max(states.len());
    }
    Ok(max_states)
}

/// Returns the states that are reachable by unrecorded steps.
fn closure(model: &Protocol, states: &HashSet<State>) -> HashSet<State> {
    let mut reachable = states.clone();
    let mut unexplored: Vec<State> = states.iter().copied().collect();
    let mut actions = Vec::new();
    while let Some(state) = unexplored.pop() {
        actions.clear();
        model.actions(&state, &mut actions);
        for action in actions.drain(..).filter(|action| is_hidden(&state, *action)) {
            if let Some(next) = model.next_state(&state, action)
                && reachable.insert(next)
            {
                unexplored.push(next);
            }
        }
    }
    reachable
}

/// Returns `true` for unrecorded steps: decisions of an agent, reads of a candidate, and pets that reach the device late.
fn is_hidden(state: &State, action: Action) -> bool {
    match action {
        Action::Agent(node, AgentStep::Stop) => state.node(node).service == Service::Absent,
        Action::Agent(_, AgentStep::NoticeClosed | AgentStep::EndHandOver | AgentStep::DropCandidates)
        | Action::Watchdog(_, WatchdogStep::Pet)
        | Action::Candidate(_, HoldEvent::Read) => true,
        Action::Tick
        | Action::Agent(..)
        | Action::Watchdog(..)
        | Action::Leader(_)
        | Action::Arrive(_)
        | Action::CutOver(_)
        | Action::Candidate(..)
        | Action::Fault(_) => false,
    }
}

/// Returns the states after one of the matching actions. A state without such an action stays if `stays` allows it.
fn states_after(
    model: &Protocol,
    states: &HashSet<State>,
    matches: impl Fn(&Action) -> bool,
    stays: impl Fn(&State) -> bool,
) -> HashSet<State> {
    let mut successors = HashSet::new();
    let mut actions = Vec::new();
    for state in closure(model, states) {
        actions.clear();
        model.actions(&state, &mut actions);
        let mut is_possible = false;
        for action in actions.drain(..).filter(|action| matches(action)) {
            is_possible = true;
            successors.insert(model.next_state(&state, action).unwrap_or(state));
        }
        if !is_possible && stays(&state) {
            successors.insert(state);
        }
    }
    successors
}

fn after_event(model: &Protocol, states: &HashSet<State>, event: Event) -> HashSet<State> {
    if let Event::Deadline { node, left_ms } = event {
        return after_deadline(model, states, node, left_ms);
    }
    states_after(
        model,
        states,
        |action| is_event_action(*action, event),
        |state| may_have_no_effect(state, event),
    )
}

/// Returns the states after the agent has set a deadline. In these states, the deadline of the model is not earlier.
fn after_deadline(model: &Protocol, states: &HashSet<State>, node: u8, left_ms: Millis) -> HashSet<State> {
    let learns = |action: &Action| matches!(action, Action::Agent(step_node, AgentStep::LearnDeadline | AgentStep::HoldOn) if *step_node == node);
    let mut successors = states_after(model, states, learns, |_| true);
    successors.extend(closure(model, states));
    let remaining = i8::try_from(left_ms / TICK_MS).unwrap_or(i8::MAX);
    // In the model, a daemon without a deadline gets a deadline only while that deadline is still useful.
    let useless = remaining <= model.configuration.bounds.margin;
    successors.retain(|state| {
        let machine = state.node(node);
        let nothing_to_guard = machine.watchdog == Watchdog::Off && machine.is_empty();
        machine.remaining() >= remaining
            || machine.watchdog == Watchdog::PetWithoutDeadline && useless
            || nothing_to_guard
    });
    successors
}

/// Returns `true` if the action corresponds to the recorded event.
fn is_event_action(action: Action, event: Event) -> bool {
    match event {
        Event::Write(write) => match action {
            Action::Agent(_, AgentStep::Commit(step_write))
            | Action::Leader(LeaderStep::Commit(step_write)) => is_same_write(step_write, write),
            Action::Leader(LeaderStep::PowerOff(node)) => {
                write == Write::Release(node, crate::write::Proof::Device)
            }
            Action::Tick
            | Action::Agent(..)
            | Action::Watchdog(..)
            | Action::Leader(_)
            | Action::Arrive(_)
            | Action::CutOver(_)
            | Action::Candidate(..)
            | Action::Fault(_) => false,
        },
        Event::Arm(node) => action == Action::Agent(node, AgentStep::Arm),
        Event::Release(node) => action == Action::Agent(node, AgentStep::Release),
        Event::PetWithoutDeadline(node) => action == Action::Agent(node, AgentStep::PetWithoutDeadline),
        Event::Pet(node) => action == Action::Watchdog(node, WatchdogStep::Pet),
        Event::Begin(node) => action == Action::Agent(node, AgentStep::Begin),
        Event::End(node) => {
            action == Action::Agent(node, AgentStep::Stop) || action == Action::Fault(Fault::Crash(node))
        }
        Event::CutOver(node) => action == Action::CutOver(node),
        Event::CheckTarget(node) => action == Action::Agent(node, AgentStep::CheckTarget),
        Event::BeginDriver(node) => action == Action::Agent(node, AgentStep::BeginDriver),
        // The device of the model resets at the latest moment; a real device may reset earlier.
        Event::PowerLost { node, by_watchdog: true } => {
            action == Action::Watchdog(node, WatchdogStep::Reset)
                || action == Action::Fault(Fault::PowerLoss(node))
        }
        Event::PowerLost { node, by_watchdog: false } => action == Action::Fault(Fault::PowerLoss(node)),
        Event::Boot(node) => action == Action::Fault(Fault::Boot(node)),
        Event::AgentEnds(node) => action == Action::Fault(Fault::AgentEnds(node)),
        Event::AgentStarts(node) => action == Action::Fault(Fault::AgentStarts(node)),
        Event::Leads => matches!(action, Action::Fault(Fault::LeaderChange(_))),
        Event::Restarts => matches!(action, Action::Fault(Fault::CandidateRestart(number)) if number > 0),
        Event::Ask(node) => action == Action::Agent(node, AgentStep::Ask),
        Event::Grant { node, leads } => {
            let Action::Candidate(index, HoldEvent::Grant(granted_node)) = action else { return false };
            granted_node == node && (index == 0) == leads
        }
        Event::Deadline { .. } => false,
    }
}

/// Returns `true` if two writes are equal. Their basis, and whether their action uid is still assigned, are not
/// compared.
fn is_same_write(step_write: Write, recorded_write: Write) -> bool {
    match (step_write, recorded_write) {
        (Write::Close { node, .. }, Write::Close { node: recorded_node, .. })
        | (Write::Stopped { node, .. }, Write::Stopped { node: recorded_node, .. })
        | (Write::Running { node, .. }, Write::Running { node: recorded_node, .. })
        // `alive` was deleted with its lease, and the same process creates it again (R3.26).
        | (Write::Heartbeat(node, Change::Keep), Write::Heartbeat(recorded_node, Change::Create)) => node == recorded_node,
        (Write::Assign { work, .. }, Write::Assign { work: recorded_node, .. }) => work == recorded_node,
        (step_write, recorded_write) => step_write == recorded_write,
    }
}

/// Returns `true` if the model omits this step in such a state, because the step has no effect there.
fn may_have_no_effect(state: &State, event: Event) -> bool {
    match event {
        // In the model, idle nodes send no heartbeats.
        Event::Write(Write::Heartbeat(node, Change::Keep | Change::Create | Change::Name)) => {
            let machine = state.node(node);
            !state.store.node_report(node).armed && machine.phase == Phase::Member && machine.is_registered
        }
        // An armed watchdog guards no service if its node has no exclusive service. The agent's last report may still
        // name an active service.
        Event::Write(Write::Heartbeat(node, Change::Arm | Change::Disarm)) => {
            state.node(node).is_empty() && state.node(node).watchdog == Watchdog::Off
        }
        Event::Arm(node) => state.node(node).is_empty(),
        Event::Release(node) => state.node(node).is_empty() && state.node(node).watchdog == Watchdog::Off,
        // The daemon pets without a deadline.
        Event::Pet(node) | Event::PetWithoutDeadline(node) => !state.node(node).follows(),
        Event::End(node) => state.node(node).service == Service::Absent,
        Event::AgentEnds(node) => !state.node(node).has_agent(),
        Event::Ask(_) => true,
        Event::Grant { node, .. } => {
            state.node(node).hold_request_age.is_none()
                || state.candidates.iter().any(|candidate| candidate.views[index_of(node)].granted)
        }
        Event::Write(_)
        | Event::Deadline { .. }
        | Event::Begin(_)
        | Event::CutOver(_)
        | Event::CheckTarget(_)
        | Event::BeginDriver(_)
        | Event::PowerLost { .. }
        | Event::Boot(_)
        | Event::AgentStarts(_)
        | Event::Leads
        | Event::Restarts => false,
    }
}
