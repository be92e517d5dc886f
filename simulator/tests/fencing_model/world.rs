//! Steps that no process decides on: time, arrivals of late writes, the driver's cutover, and faults.

use crate::action::{Action, Fault};
use crate::configuration::Configuration;
use crate::daemon;
use crate::hold;
use crate::mutation::Mutation;
use crate::network::{apply, refuse_late_writes};
use crate::node::{HandOver, Node, Phase, Power, Right, Service, Watchdog};
use crate::state::{Late, MAX_CANDIDATES, State};
use crate::store::{NODE_IDS, NODES, NodeId, index_of, other_node};
use crate::write::Key;

/// Returns `true` if a tick may pass. A device whose timeout has passed resets its machine first, unless it is petted
/// at this moment. No other step has a deadline, unless the configuration is `timely`.
pub(crate) fn may_tick(configuration: &Configuration, state: &State) -> bool {
    NODE_IDS.into_iter().all(|node| {
        let due = match state.node(node).watchdog {
            Watchdog::Off | Watchdog::PetWithoutDeadline => false,
            Watchdog::PetUntilDeadline { timer, .. } | Watchdog::Unattended { timer, .. } => timer == 0,
        };
        !(due || configuration.timely && daemon::must_act_before_tick(configuration, state, node))
    })
}

/// Advances every clock by one tick. Each counter stops at the value above which it has no further effect.
pub(crate) fn tick(configuration: &Configuration, state: &mut State) {
    let bounds = &configuration.bounds;
    for node in NODE_IDS {
        if state.store.counts_silence(node) {
            for candidate in &mut state.candidates {
                let silence = &mut candidate.silence[index_of(node)];
                *silence = (*silence + 1).min(bounds.fencing_delay());
            }
        }
        hold::tick(configuration, state, node);
        let as_guarded = state.store.target_is_as_guarded(node);
        let machine = state.node_mut(node);
        if let HandOver::Waiting { read, lost } = &mut machine.hand_over {
            *read = read.map(|age| (age + 1).min(bounds.margin));
            *lost = if as_guarded { 0 } else { (*lost + 1).min(bounds.margin) };
        }
        match &mut machine.watchdog {
            Watchdog::Off | Watchdog::PetWithoutDeadline => {}
            Watchdog::PetUntilDeadline { timer, remaining, .. }
            | Watchdog::Unattended { timer, remaining } => {
                *timer -= 1;
                *remaining = (*remaining - 1).max(-1);
            }
        }
        machine.answer_due = machine.answer_due.map(|age| (age + 1).min(bounds.heartbeat_valid + 1));
        machine.hold_request_age = machine.hold_request_age.map(|age| age + 1);
    }
}

/// Collects every arrival of a late write, and every end of a migration, that may happen now.
pub(crate) fn arrivals(configuration: &Configuration, state: &State, actions: &mut Vec<Action>) {
    for node in NODE_IDS {
        let source = state.node(node);
        let target = state.node(other_node(node));
        let ready = target.service == Service::Paused || configuration.ungated && target.is_on();
        if source.hand_over == HandOver::Driving && source.service == Service::Running && ready {
            actions.push(Action::CutOver(node));
        }
    }
    let late = state.late.iter().enumerate().filter(|(_, late)| late.is_some());
    actions.extend(late.map(|(number, _)| Action::Arrive(number)));
}

/// Delivers a late write to the store.
pub(crate) fn arrive(configuration: &Configuration, state: &mut State, number: usize) {
    match state.late[number].take() {
        Some(Late::Waiting(write)) => apply(configuration, state, write, false),
        Some(Late::Refused) | None => {}
    }
}

/// Ends the migration by the driver: the source pauses before the target continues, so two copies do not run at the
/// same time.
pub(crate) fn cut_over(state: &mut State, from: NodeId) {
    let source = state.node_mut(from);
    source.service = Service::Absent;
    source.hand_over = HandOver::None;
    state.node_mut(other_node(from)).service = Service::Running;
}

/// Collects every fault that may happen now.
pub(crate) fn faults(configuration: &Configuration, state: &State, actions: &mut Vec<Action>) {
    let mut add = |fault| actions.push(Action::Fault(fault));
    for node in NODE_IDS {
        let machine = state.node(node);
        match machine.power {
            Power::Off { .. } => add(Fault::Boot(node)),
            Power::On => node_faults(configuration, machine, node, &mut add),
        }
    }
    let elected = |number: usize| state.candidates[number].present && !state.candidates[number].dead;
    if configuration.candidates == 1 || !state.has_leader && elected(0) {
        add(Fault::LeaderChange(0));
    }
    for follower in (1..MAX_CANDIDATES).filter(|follower| elected(*follower)) {
        add(Fault::LeaderChange(follower));
    }
    if configuration.candidate_restarts {
        let first = usize::from(!configuration.hold);
        for number in (first..MAX_CANDIDATES).filter(|number| elected(*number)) {
            add(Fault::CandidateRestart(number));
        }
    }
    if configuration.candidate_deaths && (0..MAX_CANDIDATES).filter(|number| elected(*number)).count() > 1 {
        for number in (0..MAX_CANDIDATES).filter(|number| elected(*number)) {
            add(Fault::CandidateDies(number));
        }
    }
}

/// Collects the faults that may happen on a running machine.
fn node_faults(configuration: &Configuration, machine: &Node, node: NodeId, add: &mut impl FnMut(Fault)) {
    if configuration.power_loss {
        add(Fault::PowerLoss(node));
    }
    if configuration.agent_restarts && machine.has_agent() {
        add(Fault::AgentEnds(node));
    }
    if !machine.has_agent() {
        add(Fault::AgentStarts(node));
    }
    if configuration.crashes && machine.service != Service::Absent {
        add(Fault::Crash(node));
    }
    match (configuration.bounds.device, machine.watchdog) {
        (crate::bounds::Device::NotRetained, Watchdog::PetUntilDeadline { .. }) => {
            add(Fault::DaemonEnds(node));
        }
        (
            _,
            Watchdog::Off
            | Watchdog::PetWithoutDeadline
            | Watchdog::PetUntilDeadline { .. }
            | Watchdog::Unattended { .. },
        ) => {}
    }
}

/// Applies a fault, or the end of one.
pub(crate) fn apply_fault(configuration: &Configuration, state: &mut State, fault: Fault) {
    match fault {
        Fault::PowerLoss(node) => state.node_mut(node).power_off(false),
        Fault::Boot(node) => state.node_mut(node).boot(),
        Fault::AgentEnds(node) => {
            let machine = state.node_mut(node);
            let joined = matches!(machine.phase, Phase::Member | Phase::Resuming);
            machine.phase = Phase::Dead;
            machine.is_registered &= joined;
            machine.right = Right::None;
            machine.answer_due = None;
            // A driver that runs outlives the agent. A driver that has not begun never begins (R8.12).
            if matches!(machine.hand_over, HandOver::Waiting { .. }) {
                machine.hand_over = HandOver::None;
            }
        }
        Fault::AgentStarts(node) => {
            let machine = state.node_mut(node);
            machine.phase = if machine.is_registered { Phase::Resuming } else { Phase::Clearing };
        }
        Fault::DaemonEnds(node) => {
            let remaining = state.node(node).remaining();
            state.node_mut(node).watchdog =
                Watchdog::Unattended { timer: configuration.bounds.timeout, remaining };
        }
        Fault::Crash(node) => state.node_mut(node).service = Service::Absent,
        Fault::LeaderChange(follower) => {
            state.candidates.swap(0, follower);
            state.has_leader = true;
            hold::read(&mut state.candidates[0]);
            refuse_late_writes(configuration, state, Key::Leader);
            if configuration.has_mutation(Mutation::StoredTimes) {
                state.candidates[0].silence = [configuration.bounds.fencing_delay(); NODES];
            }
        }
        Fault::CandidateRestart(number) => {
            hold::restart(configuration, &mut state.candidates[number]);
            state.has_leader &= number != 0;
        }
        Fault::CandidateDies(number) => {
            state.candidates[number].dead = true;
            state.has_leader &= number != 0;
        }
    }
}
