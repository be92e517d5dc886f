//! The store's side of a write: the late writes that etcd refuses because of it, and its effect when it is applied.

use crate::configuration::Configuration;
use crate::hold;
use crate::mutation::Mutation;
use crate::node::{HandOver, Phase, Right, Service, Watchdog};
use crate::state::{Harm, Late, State};
use crate::store::{Evidence, Fence, Mode, ModelServiceReport, NODE_IDS, NodeId, Work, index_of, other_node};
use crate::write::{Change, Key, Proof, Write};

/// Refuses every late write that guards a key which has just been written.
pub(crate) fn refuse_late_writes(configuration: &Configuration, state: &mut State, key: Key) {
    for late in state.late.iter_mut().flatten() {
        if let Late::Waiting(write) = *late
            && write.guards(configuration.mutation) & key.bit() != 0
        {
            *late = Late::Refused;
        }
    }
}

/// Adds a write to the late writes, if their number is below the limit.
pub(crate) fn delay_write(state: &mut State, write: Write) {
    if let Some(slot) = state.late.iter_mut().find(|slot| slot.is_none()) {
        *slot = Some(Late::Waiting(write));
    }
}

/// Returns `true` if another write may become late.
pub(crate) fn has_room(configuration: &Configuration, state: &State) -> bool {
    state.late.iter().flatten().count() < configuration.late
}

/// Applies a write whose guards hold. If `sender_knows`, the sender still waits and receives the outcome. If not, the
/// sender reads the store, as every step of an agent does.
pub(crate) fn apply(configuration: &Configuration, state: &mut State, write: Write, sender_knows: bool) {
    match write {
        Write::Heartbeat(node, change) => heartbeat(configuration, state, node, change, sender_knows),
        Write::Permit(node) => {
            let answer = match state.store.assignment.work {
                Work::Run(_) | Work::Halt(_) => ModelServiceReport::Active,
                Work::Move { .. } => ModelServiceReport::Receiving,
            };
            record_service_report(configuration, state, node, answer);
            // The answer contains the permit. The guards of the permit ensure that it is valid.
            if state.node(node).phase == Phase::Member {
                learn_permit(state, node);
            }
        }
        Write::Stopped { node, current } => {
            record_service_report(
                configuration,
                state,
                node,
                if current { ModelServiceReport::Stopped } else { ModelServiceReport::None },
            );
        }
        Write::Running { node, current } => {
            record_service_report(
                configuration,
                state,
                node,
                if current { ModelServiceReport::Active } else { ModelServiceReport::Outdated },
            );
        }
        Write::HandOver(node) => {
            record_service_report(configuration, state, node, ModelServiceReport::HandingOver);
            let machine = state.node_mut(node);
            machine.right = Right::None;
            machine.is_spent = true;
            // If the agent restarted after it sent this write, the new process never starts the driver (R8.12).
            let waits = machine.service == Service::Running && machine.phase == Phase::Member;
            machine.hand_over = match machine.hand_over {
                // Mutation only.
                HandOver::Driving => HandOver::Driving,
                HandOver::None | HandOver::Waiting { .. } if waits => {
                    HandOver::Waiting { read: None, lost: 0 }
                }
                HandOver::None | HandOver::Waiting { .. } => HandOver::None,
            };
        }
        Write::Register(node) => {
            let node_report = &mut state.store.node_reports[index_of(node)];
            node_report.mode = Mode::Registering { admitted: false };
            node_report.armed = false;
            refuse_late_writes(configuration, state, Key::NodeReport(node));
            let machine = state.node_mut(node);
            if sender_knows && machine.phase == Phase::Clearing {
                machine.phase = Phase::Requested;
            }
        }
        Write::CleanShutdown(node) => {
            let node_report = &mut state.store.node_reports[index_of(node)];
            node_report.mode = Mode::Left;
            node_report.armed = false;
            let machine = state.node_mut(node);
            machine.is_registered = false;
            if sender_knows {
                machine.phase = Phase::Dead;
                machine.watchdog = Watchdog::Off;
            }
            refuse_late_writes(configuration, state, Key::NodeReport(node));
            refuse_late_writes(configuration, state, Key::Created(node));
            refuse_late_writes(configuration, state, Key::Alive(node));
        }
        Write::Close { node, .. } => {
            if state.store.fence(node) != Fence::Open {
                state.harm = Harm::EpochWentBack;
            }
            // The fence keeps the content of the closed epoch's report. The report then states only whether the node
            // registers or has left.
            let node_report = &mut state.store.node_reports[index_of(node)];
            state.store.fences[index_of(node)] = Fence::Fencing { armed: node_report.armed };
            node_report.armed = false;
            if node_report.mode == (Mode::Registering { admitted: true }) {
                node_report.mode = Mode::Active;
            }
            state.store.assignment.is_current[index_of(node)] = false;
            state.node_mut(node).is_registered = false;
            hold::closed(configuration, state, node, sender_knows);
            refuse_late_writes(configuration, state, Key::Fence(node));
        }
        Write::Release(node, proof) => {
            if !matches!(state.store.fence(node), Fence::Fencing { .. }) {
                state.harm = Harm::EpochWentBack;
            }
            state.store.fences[index_of(node)] = Fence::Released;
            note_release(configuration, state, node, proof);
            refuse_late_writes(configuration, state, Key::Fence(node));
        }
        Write::Open(node) => {
            if state.store.fence(node) != Fence::Released {
                state.harm = Harm::EpochWentBack;
            }
            state.store.fences[index_of(node)] = Fence::Open;
            state.store.node_reports[index_of(node)].mode = Mode::Registering { admitted: true };
            refuse_late_writes(configuration, state, Key::Fence(node));
            let machine = state.node_mut(node);
            machine.is_registered = machine.phase == Phase::Requested;
            state.store.answered_in_epoch[index_of(node)] = false;
            hold::opened(state, node);
        }
        Write::Assign { work, .. } => assign(configuration, state, work),
    }
}

/// Applies a heartbeat: every process sees `alive` change.
fn heartbeat(
    configuration: &Configuration,
    state: &mut State,
    node: NodeId,
    change: Change,
    sender_knows: bool,
) {
    match change {
        Change::Keep => {}
        Change::Name => {
            hold::named(state, node);
            refuse_late_writes(configuration, state, Key::NodeReport(node));
        }
        Change::Arm | Change::Disarm => {
            state.store.node_reports[index_of(node)].armed = change == Change::Arm;
            refuse_late_writes(configuration, state, Key::NodeReport(node));
        }
        Change::Create => {
            state.store.node_reports[index_of(node)].mode = Mode::Active;
            hold::named(state, node);
            refuse_late_writes(configuration, state, Key::NodeReport(node));
            refuse_late_writes(configuration, state, Key::Created(node));
        }
    }
    refuse_late_writes(configuration, state, Key::Alive(node));
    if awaits_evidence(configuration, state, node) && state.store.assignment.evidence == Evidence::None {
        state.store.assignment.evidence = Evidence::Heartbeat;
    }
    for candidate in &mut state.candidates {
        candidate.silence[index_of(node)] = 0;
        candidate.views[index_of(node)].alone = 0;
    }
    let joins = match state.node(node).phase {
        Phase::Resuming | Phase::Requested => sender_knows && change == Change::Create,
        Phase::Dead | Phase::Member | Phase::Clearing => false,
    };
    if joins {
        state.node_mut(node).phase = Phase::Member;
        // A new process reads the store. An answer from before the current epoch of the node is not a permit.
        if state.store.is_assigned(node) {
            learn_permit(state, node);
        }
    }
    let machine = state.node_mut(node);
    if sender_knows && machine.watchdog != Watchdog::Off {
        machine.answer_due = Some(0);
    }
}

/// Returns `true` if the node is the target of a migration whose source has ended, and only later evidence counts. The
/// service may have arrived there in any boot (R8.13, R8.17).
fn awaits_evidence(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let from = other_node(node);
    let assignment = state.store.assignment;
    let has_moved = configuration.ungated && assignment.work == Work::Move { from } && is_gone(state, from);
    has_moved || assignment.asks_for_hold && assignment.work.names(node)
}

/// Records whether a release of the target is later than the end of the source.
fn note_release(configuration: &Configuration, state: &mut State, node: NodeId, proof: Proof) {
    // Without a permit, the daemon of an armed node may have no deadline yet. The watchdog then does not end a copy
    // that arrives.
    let store = &state.store;
    let has_permit = store.answered_in_epoch[index_of(node)] && store.service_report(node).is_active();
    let is_later = match proof {
        Proof::Silence => {
            let counts = has_permit || configuration.has_mutation(Mutation::ArmedIsEnough);
            store.assignment.evidence == Evidence::Heartbeat && counts
        }
        Proof::Device => true,
        Proof::Registration | Proof::CleanShutdown | Proof::Inactive => false,
    };
    if is_later && awaits_evidence(configuration, state, node) {
        state.store.assignment.evidence = Evidence::Release;
    }
}

/// Writes an agent's report.
fn record_service_report(
    configuration: &Configuration,
    state: &mut State,
    node: NodeId,
    answer: ModelServiceReport,
) {
    state.store.service_reports[index_of(node)] = answer;
    state.store.answered_in_epoch[index_of(node)] = true;
    refuse_late_writes(configuration, state, Key::ServiceReport(node));
}

/// Gives the agent the right of its permit at the earliest possible moment, the commit of the permit. An action that
/// the agent has begun or given up is not begun again. It may only continue while its copy runs under its permit.
fn learn_permit(state: &mut State, node: NodeId) {
    let answer = state.store.service_report(node);
    let work = state.store.assignment.work;
    let machine = state.node_mut(node);
    match answer {
        ModelServiceReport::Active => {
            let keeps_running = machine.service == Service::Running && work == Work::Run(node);
            if keeps_running || !machine.is_spent {
                machine.right = Right::Start { current: true };
                machine.is_spent = keeps_running;
            }
        }
        ModelServiceReport::Receiving => {
            if !machine.is_spent {
                machine.right = Right::Receive { current: true };
            }
        }
        ModelServiceReport::None
        | ModelServiceReport::Stopped
        | ModelServiceReport::HandingOver
        | ModelServiceReport::Outdated => {}
    }
}

/// Returns `true` if a new assignment asks its node about an arrival: the node was the target of a migration and has
/// not reported the arrival, or the leader has asked the node and it has not answered (R8.17).
fn needs_arrival_answer(configuration: &Configuration, state: &State, work: Work) -> bool {
    let before = state.store.assignment;
    match (before.work, work) {
        (Work::Move { from }, Work::Halt(on)) => configuration.ungated && on != from,
        (Work::Move { from }, Work::Run(on)) => {
            let waits = state.store.service_report(on) == ModelServiceReport::Receiving;
            configuration.ungated
                && on != from
                && waits
                && !configuration.has_mutation(Mutation::StartNotAsked)
        }
        (Work::Run(was) | Work::Halt(was), Work::Run(on) | Work::Halt(on)) => {
            before.asks_for_hold && was == on && !has_answered(state, on)
        }
        (_, Work::Move { .. }) => false,
    }
}

/// Returns `true` if the node has reported under the current assignment. All later evidence about the node is then
/// newer than the assignment.
pub(crate) fn has_answered(state: &State, node: NodeId) -> bool {
    match state.store.service_report(node) {
        ModelServiceReport::Active
        | ModelServiceReport::Stopped
        | ModelServiceReport::Receiving
        | ModelServiceReport::HandingOver => true,
        ModelServiceReport::None | ModelServiceReport::Outdated => false,
    }
}

/// Writes a new assignment under a new action uid, which outdates every answer, right and write for the former action
/// uid.
fn assign(configuration: &Configuration, state: &mut State, work: Work) {
    let asks_for_hold = needs_arrival_answer(configuration, state, work);
    if !asks_for_hold {
        state.store.assignment.evidence = Evidence::None;
    }
    state.store.assignment.asks_for_hold = asks_for_hold;
    state.store.assignment.work = work;
    for node in NODE_IDS {
        state.store.assignment.is_current[index_of(node)] = work.names(node);
        state.store.service_reports[index_of(node)] = state.store.service_report(node).outdated();
        let machine = state.node_mut(node);
        machine.right = machine.right.outdated();
        machine.is_spent = false;
        machine.receives = false;
    }
    for late in state.late.iter_mut().flatten() {
        if let Late::Waiting(write) = *late {
            *late = Late::Waiting(write.outdated());
        }
    }
    refuse_late_writes(configuration, state, Key::Assignment);
}

/// Returns `true` if the leader may record this proof for a node whose fence is Fencing (FENCING 5).
pub(crate) fn proves(configuration: &Configuration, state: &State, node: NodeId, proof: Proof) -> bool {
    let Fence::Fencing { armed } = state.store.fence(node) else { return false };
    match proof {
        Proof::Silence => {
            armed
                && state.leaders_silence(node) >= configuration.release_after()
                && hold::may_conclude(configuration, state, node)
        }
        // The step that powers off the machine sends this write; the leader never decides on it separately.
        Proof::Device => false,
        Proof::Registration => state.store.node_report(node).mode == Mode::Registering { admitted: false },
        Proof::CleanShutdown => state.store.node_report(node).mode == Mode::Left,
        Proof::Inactive => !is_active(configuration, state, node),
    }
}

/// Returns `true` if the node's report names an active service that the watchdog must guard (R4.26), or if the leader
/// has asked the node about a copy that may have arrived, and the node has not answered (R8.17).
pub(crate) fn is_active(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let store = &state.store;
    let must_answer = configuration.ungated
        && store.assignment.work == Work::Halt(node)
        && (store.is_assigned(node) || matches!(store.fence(node), Fence::Fencing { .. }))
        && store.service_report(node) != ModelServiceReport::Stopped;
    store.exclusive
        && (must_answer || store.answered_in_epoch[index_of(node)] && store.service_report(node).is_active())
}

/// Returns `true` if no copy can be on the target of a migration, after the end of its source (R8.16, R8.17).
pub(crate) fn has_nothing(configuration: &Configuration, state: &State, target: NodeId) -> bool {
    if configuration.ungated && !configuration.has_mutation(Mutation::EarlierProofCounts) {
        state.store.assignment.evidence == Evidence::Release
    } else {
        is_gone(state, target)
    }
}

/// Returns `true` if the node has reported the end of the assigned action, or is proven to have ended (FENCING 6).
pub(crate) fn is_gone(state: &State, node: NodeId) -> bool {
    state.store.service_report(node) == ModelServiceReport::Stopped || state.store.is_proven_dead(node)
}

/// Returns `true` if the other node's copy is confirmed to run.
pub(crate) fn has_arrived(state: &State, from: NodeId) -> bool {
    state.store.service_report(other_node(from)) == ModelServiceReport::Active
}
