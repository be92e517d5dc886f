//! The leader's part of the protocol: closing an epoch, proofs, opening, assigning (FENCING 3, 5, 6, 8).
//!
//! The leader's goals are not part of the model: the leader may take any allowed step at any time. The leader receives
//! no outcome for a late write, and continues.

use crate::action::LeaderStep;
use crate::configuration::Configuration;
use crate::hold;
use crate::mutation::Mutation;
use crate::network::{
    apply, delay_write, has_answered, has_arrived, has_nothing, has_room, is_active, is_gone, proves,
};
use crate::state::State;
use crate::store::{Evidence, Fence, Mode, ModelServiceReport, NODE_IDS, NodeId, Work, index_of, other_node};
use crate::write::{Proof, Write};

/// Collects every step that the leader may take now.
pub(crate) fn collect_steps(configuration: &Configuration, state: &State, steps: &mut Vec<LeaderStep>) {
    let leader = &state.candidates[0];
    if leader.dead || configuration.hold && !(state.has_leader && leader.is_current()) {
        return;
    }
    let room = has_room(configuration, state);
    let mut write = |write| {
        steps.push(LeaderStep::Commit(write));
        let is_declaration = matches!(write, Write::Close { on_missed_heartbeats: true, .. });
        let late = configuration.late_leader || configuration.late_declarations && is_declaration;
        if room && late {
            steps.push(LeaderStep::Lose(write));
        }
    };
    for node in NODE_IDS {
        let store = &state.store;
        match store.fence(node) {
            Fence::Open => {
                if let Some(on_missed_heartbeats) = may_close(configuration, state, node) {
                    write(Write::Close { node, on_missed_heartbeats });
                }
            }
            Fence::Fencing { .. } => {
                for proof in [Proof::Silence, Proof::Registration, Proof::CleanShutdown, Proof::Inactive] {
                    if proves(configuration, state, node, proof) {
                        write(Write::Release(node, proof));
                    }
                }
            }
            Fence::Released => {
                if store.node_report(node).mode == (Mode::Registering { admitted: false }) {
                    write(Write::Open(node));
                }
            }
        }
    }
    propose_assignments(configuration, state, &mut |work, answers| {
        let fences = work.nodes() | state.store.assignment.work.nodes();
        write(Write::Assign { work, fences, answers });
    });
    if configuration.definitions
        && (state.store.has_no_copy() || configuration.has_mutation(Mutation::DefinedWithACopy))
    {
        steps.push(LeaderStep::Define);
    }
    if configuration.fence_device {
        let fencing = |node: &NodeId| matches!(state.store.fence(*node), Fence::Fencing { .. });
        steps.extend(NODE_IDS.into_iter().filter(fencing).map(LeaderStep::PowerOff));
    }
}

pub(crate) fn apply_step(configuration: &Configuration, state: &mut State, step: LeaderStep) {
    match step {
        LeaderStep::Commit(write) => apply(configuration, state, write, true),
        LeaderStep::Lose(write) => {
            hold::declared(state, write);
            delay_write(state, write);
        }
        LeaderStep::Define => state.store.exclusive = !state.store.exclusive,
        LeaderStep::PowerOff(node) => {
            if state.node(node).is_on() {
                state.node_mut(node).power_off(false);
            }
            apply(configuration, state, Write::Release(node, Proof::Device), true);
        }
    }
}

/// Returns `true` if a close of an open epoch is based on silence; `None` if the epoch may not be closed.
///
/// The silence of an unarmed node is not counted: it may be closed at any time, if (g) or a device can follow.
fn may_close(configuration: &Configuration, state: &State, node: NodeId) -> Option<bool> {
    let node_report = state.store.node_report(node);
    match node_report.mode {
        Mode::Registering { admitted: false } | Mode::Left => Some(false),
        Mode::Active | Mode::Registering { admitted: true } => {
            let silent = if node_report.armed {
                state.leaders_silence(node) >= configuration.bounds.heartbeat_valid
                    && hold::may_declare(configuration, state, node)
            } else {
                let counts = configuration.idle_closes || state.store.is_assigned(node);
                counts && (configuration.fence_device || !is_active(configuration, state, node))
            };
            silent.then_some(true)
        }
    }
}

/// Returns `true` if the service may be assigned to the node.
fn is_open(state: &State, node: NodeId) -> bool {
    state.store.fence(node) == Fence::Open
}

/// Collects every assignment that may follow the current assignment, with the nodes on whose reports it is based.
fn propose_assignments(configuration: &Configuration, state: &State, propose: &mut impl FnMut(Work, u8)) {
    let work = state.store.assignment.work;
    match work {
        Work::Run(on) | Work::Halt(on) => {
            let stopped = state.store.service_report(on) == ModelServiceReport::Stopped;
            // A service that is not exclusive needs no proof.
            let waits_for_none = !state.store.exclusive && state.store.fence(on) != Fence::Open;
            if stopped
                || waits_for_none
                || state.store.is_proven_dead(on) && !awaits_answer(configuration, state, on)
                || may_release_unclosed(configuration, state, on)
            {
                propose_anywhere(state, if stopped { 1 << on } else { 0 }, propose);
            }
            // The proof of the closed epoch may be older than the arrival, so the leader asks the node again (R8.17).
            if state.store.is_proven_dead(on) && awaits_answer(configuration, state, on) && is_open(state, on)
            {
                propose(Work::Halt(on), 0);
            }
            if is_open(state, on) && state.store.assignment.is_current[index_of(on)] {
                propose_in_place(configuration, state, on, propose);
            }
        }
        Work::Move { from } => propose_after_migration(configuration, state, from, propose),
    }
}

/// Returns `true` if a proof without an answer does not exclude an arrival (R8.17).
fn awaits_answer(configuration: &Configuration, state: &State, on: NodeId) -> bool {
    let assignment = state.store.assignment;
    assignment.asks_for_hold
        && !has_answered(state, on)
        && assignment.evidence != Evidence::Release
        && !configuration.has_mutation(Mutation::AnswerNotAwaited)
}

/// Collects the starts of a service without any copy: it may start on any open node.
fn propose_anywhere(state: &State, answers: u8, propose: &mut impl FnMut(Work, u8)) {
    for node in NODE_IDS {
        if is_open(state, node) {
            propose(Work::Run(node), answers);
        }
    }
}

/// Mutation only: returns `true` if the node's epoch is open, and the node is silent for W or has no active service.
fn may_release_unclosed(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    if !configuration.has_mutation(Mutation::ReleaseWithoutClosing) || !is_open(state, node) {
        return false;
    }
    let armed = state.store.node_report(node).armed;
    let silent = armed && state.leaders_silence(node) >= configuration.release_after();
    silent || !state.store.service_report(node).is_active()
}

/// Collects other actions for the service's current node: stop, start, migrate away.
fn propose_in_place(
    configuration: &Configuration,
    state: &State,
    on: NodeId,
    propose: &mut impl FnMut(Work, u8),
) {
    match state.store.assignment.work {
        Work::Halt(_) => propose(Work::Run(on), 0),
        Work::Run(_) => {
            if configuration.commands {
                propose(Work::Halt(on), 0);
            }
            if configuration.migration
                && is_open(state, other_node(on))
                && state.store.service_report(on) == ModelServiceReport::Active
            {
                propose(Work::Move { from: on }, 1 << on);
            }
        }
        Work::Move { .. } => {}
    }
}

/// Collects the assignments after a migration (FENCING 8): until HandingOver, the service is on the source; after it,
/// the service is on one of the two nodes.
fn propose_after_migration(
    configuration: &Configuration,
    state: &State,
    from: NodeId,
    propose: &mut impl FnMut(Work, u8),
) {
    let target = other_node(from);
    let answered = state.store.service_report(from);
    let stopped_guard = |node: NodeId| {
        if state.store.service_report(node) == ModelServiceReport::Stopped { 1 << node } else { 0 }
    };
    match answered {
        // The source has not handed over. The service goes back to the source, or to any node once the source is proven
        // gone.
        ModelServiceReport::None | ModelServiceReport::Outdated => {
            if state.store.is_assigned(from) && is_open(state, from) {
                propose(Work::Run(from), 1 << from);
            }
            if state.store.is_proven_dead(from) {
                propose_anywhere(state, 0, propose);
            }
        }
        // The source has probed, and the service still runs there.
        ModelServiceReport::Active => {
            if is_open(state, from) && state.store.is_assigned(from) {
                propose(Work::Run(from), 1 << from);
            }
        }
        ModelServiceReport::HandingOver
            if configuration.has_mutation(Mutation::SourceEndNotAwaited) && is_gone(state, target) =>
        {
            if is_open(state, from) && state.store.is_assigned(from) {
                propose(Work::Run(from), 1 << from);
            }
        }
        ModelServiceReport::Stopped | ModelServiceReport::Receiving | ModelServiceReport::HandingOver => {}
    }
    let handed_over = match answered {
        ModelServiceReport::None | ModelServiceReport::Outdated => false,
        ModelServiceReport::Active
        | ModelServiceReport::Stopped
        | ModelServiceReport::Receiving
        | ModelServiceReport::HandingOver => true,
    };
    if !handed_over || !is_gone(state, from) {
        return;
    }
    // The source is proven gone. The leader therefore orders a target that still waits to receive to start the service,
    // which clears the data received.
    let waits = state.store.is_proven_dead(from)
        && state.store.service_report(target) == ModelServiceReport::Receiving;
    if (has_arrived(state, from) || waits) && is_open(state, target) && state.store.is_assigned(target) {
        propose(Work::Run(target), stopped_guard(from) | 1 << target);
    }
    if has_nothing(configuration, state, target) || configuration.has_mutation(Mutation::FreshAfterHandOver) {
        propose_anywhere(state, stopped_guard(from) | stopped_guard(target), propose);
    }
    // The target's earlier answers may be older than an arrival, so the leader orders the target to stop a copy that
    // has arrived.
    if configuration.ungated && is_gone(state, target) && is_open(state, target) {
        propose(Work::Halt(target), stopped_guard(from) | stopped_guard(target));
    }
}
