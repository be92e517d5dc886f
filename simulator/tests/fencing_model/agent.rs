//! The agent's part of the protocol: heartbeats, arming, permits, stop-then-stay, registration (FENCING 3, 4, 6, 8, 10).
//!
//! An agent reads the store again at each step. A step based on an older read is equivalent to a write that was sent at
//! the time of the read and has not arrived yet, because every write guards the values on which it is based.

use crate::action::AgentStep;
use crate::configuration::Configuration;
use crate::hold;
use crate::mutation::Mutation;
use crate::network::{apply, delay_write, has_room, is_active};
use crate::node::{HandOver, Node, Phase, Right, Service, Watchdog};
use crate::state::{Harm, State};
use crate::store::{Mode, ModelServiceReport, NodeId, Work, other_node};
use crate::write::{Change, Write};

/// Collects every step that this node's agent may take now.
pub(crate) fn collect_steps(
    configuration: &Configuration,
    state: &State,
    node: NodeId,
    agent_steps: &mut Vec<AgentStep>,
) {
    let machine = state.node(node);
    if !machine.is_on() || !machine.has_agent() {
        return;
    }
    answer_steps(configuration, machine, agent_steps);
    watchdog_steps(configuration, state, node, agent_steps);
    service_steps(configuration, state, node, agent_steps);
    hold_steps(configuration, state, node, agent_steps);
    let writes = heartbeat_writes(configuration, state, node)
        .chain(report_writes(configuration, state, node).into_iter().flatten());
    for write in writes {
        agent_steps.push(AgentStep::Commit(write));
        if has_room(configuration, state) && !configuration.late_declarations {
            agent_steps.push(AgentStep::Lose(write));
        }
    }
    // An answered request is void if its epoch is closed again.
    let waits = match state.store.node_report(node).mode {
        Mode::Registering { .. } => machine.phase == Phase::Requested,
        Mode::Active | Mode::Left => false,
    };
    if !waits && machine.phase != Phase::Clearing && !machine.is_registered {
        agent_steps.push(AgentStep::NoticeClosed);
    }
}

/// Collects the steps after a heartbeat's answer.
fn answer_steps(configuration: &Configuration, machine: &Node, agent_steps: &mut Vec<AgentStep>) {
    if machine.answer_due.is_some() {
        agent_steps.push(AgentStep::LearnDeadline);
    }
    if configuration.has_mutation(Mutation::KeepAliveProves) && machine.follows() && machine.remaining() >= 0
    {
        agent_steps.push(AgentStep::KeepAlive);
    }
}

/// Collects the steps in which the agent asks candidates for hold.
fn hold_steps(configuration: &Configuration, state: &State, node: NodeId, agent_steps: &mut Vec<AgentStep>) {
    let machine = state.node(node);
    if !configuration.hold || machine.phase != Phase::Member {
        return;
    }
    if machine.hold_request_age != Some(0) && !machine.is_empty() && may_hold_on(configuration, machine, 0) {
        agent_steps.push(AgentStep::Ask);
    }
    if machine.hold_request_age.is_some() && hold::all_granted(configuration, state, node) {
        agent_steps.push(AgentStep::HoldOn);
    }
    if hold::may_drop(state, node) {
        agent_steps.push(AgentStep::DropCandidates);
    }
}

/// Returns `true` if grants for a question of this age would still extend D.
pub(crate) fn may_hold_on(configuration: &Configuration, machine: &Node, age: i8) -> bool {
    machine.follows()
        && machine.phase == Phase::Member
        && machine.remaining() >= 0
        && configuration.bounds.heartbeat_valid - age > machine.remaining()
}

/// Collects the steps that arm, release or stay.
fn watchdog_steps(
    configuration: &Configuration,
    state: &State,
    node: NodeId,
    agent_steps: &mut Vec<AgentStep>,
) {
    let machine = state.node(node);
    let store = &state.store;
    match machine.watchdog {
        Watchdog::Off => {
            let needs_watchdog =
                may_request_permit(state, node) || machine.receives || is_active(configuration, state, node);
            if machine.phase == Phase::Member && needs_watchdog {
                agent_steps.push(AgentStep::Arm);
            }
        }
        Watchdog::PetWithoutDeadline | Watchdog::PetUntilDeadline { .. } => {
            let released = match machine.phase {
                // A release commits no write, so an agent may release before it has read its newest assignment.
                Phase::Member => machine.is_registered && !store.node_report(node).armed,
                Phase::Requested => true,
                Phase::Dead | Phase::Resuming | Phase::Clearing => false,
            };
            if released && guards_nothing(state, node) {
                agent_steps.push(AgentStep::Release);
            }
        }
        Watchdog::Unattended { .. } => {}
    }
    if machine.follows()
        && machine.remaining() <= configuration.bounds.margin
        && may_pet_without_deadline(configuration, state, node)
    {
        agent_steps.push(AgentStep::PetWithoutDeadline);
    }
}

/// Returns `true` if the node is *empty* and no permit with an unknown outcome can change that.
pub(crate) fn may_pet_without_deadline(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let machine = state.node(node);
    let unknown = state.has_unknown_permit(node) && !machine.is_spent;
    (guards_nothing(state, node) || configuration.has_mutation(Mutation::StayBeforeStopped))
        && !unknown
        && !machine.receives
}

/// Returns `true` if the node is *empty*, or if the service need not be exclusive.
fn guards_nothing(state: &State, node: NodeId) -> bool {
    state.node(node).is_empty() || !state.store.exclusive
}

/// Collects the steps that start or stop the service.
fn service_steps(
    configuration: &Configuration,
    state: &State,
    node: NodeId,
    agent_steps: &mut Vec<AgentStep>,
) {
    let machine = state.node(node);
    // The time condition of the permit was checked when the permit was sent: the agent may be paused before this step.
    let acknowledged = machine.follows()
        || !state.store.exclusive
        || configuration.has_mutation(Mutation::PermitBeforeArmed);
    if machine.right != Right::None && machine.service == Service::Absent && acknowledged {
        agent_steps.push(AgentStep::Begin);
    }
    if may_stop(state, node) {
        agent_steps.push(AgentStep::Stop);
    }
    if machine.hand_over != HandOver::None {
        agent_steps.push(AgentStep::EndHandOver);
    }
    if let HandOver::Waiting { read, .. } = machine.hand_over
        && machine.phase == Phase::Member
    {
        if read.is_none() {
            agent_steps.push(AgentStep::CheckTarget);
        }
        if may_begin_driver(configuration, read) {
            agent_steps.push(AgentStep::BeginDriver);
        }
    }
}

/// Returns `true` if the read showed the target as HandingOver guards it, and less than Ts has passed since the agent
/// sent the read (R8.11).
fn may_begin_driver(configuration: &Configuration, read: Option<i8>) -> bool {
    match read {
        None => configuration.has_mutation(Mutation::BegunWithoutReading),
        Some(age) => {
            age < configuration.bounds.margin || configuration.has_mutation(Mutation::BegunAfterMargin)
        }
    }
}

/// Returns `true` if the node has a copy to stop, or a permit of unknown outcome that it could still use.
pub(crate) fn may_stop(state: &State, node: NodeId) -> bool {
    let machine = state.node(node);
    !machine.is_empty() || (state.has_unknown_permit(node) && !machine.is_spent)
}

/// Returns the heartbeats that the agent may send. Heartbeats of an idle, unarmed node are omitted, because they have
/// no effect: the model allows such a node to be closed at any time.
fn heartbeat_writes(
    configuration: &Configuration,
    state: &State,
    node: NodeId,
) -> impl Iterator<Item = Write> {
    let machine = state.node(node);
    let armed = state.store.node_report(node).armed;
    // A service without a confirmed stop is active (R4.26), even if no part of it still exists.
    let needs_watchdog = may_request_permit(state, node)
        || !machine.is_empty()
        || machine.receives
        || is_active(configuration, state, node);
    let (first, second) = match machine.phase {
        Phase::Member if machine.is_registered => match machine.watchdog {
            Watchdog::Off => (None, None),
            Watchdog::PetWithoutDeadline
            | Watchdog::PetUntilDeadline { .. }
            | Watchdog::Unattended { .. }
                if armed =>
            {
                (Some(Change::Keep), (!needs_watchdog).then_some(Change::Disarm))
            }
            Watchdog::PetWithoutDeadline
            | Watchdog::PetUntilDeadline { .. }
            | Watchdog::Unattended { .. } => (needs_watchdog.then_some(Change::Arm), None),
        },
        Phase::Resuming | Phase::Requested if machine.is_registered => (Some(Change::Create), None),
        Phase::Member | Phase::Resuming | Phase::Requested | Phase::Clearing | Phase::Dead => (None, None),
    };
    let hold_is_named = (configuration.hold && first == Some(Change::Keep) && hold::has_unnamed(state, node))
        .then_some(Change::Name);
    [first, second, hold_is_named].into_iter().flatten().map(move |change| Write::Heartbeat(node, change))
}

/// Returns `true` if an assignment orders the node to run or receive the service and the node has not answered.
fn may_request_permit(state: &State, node: NodeId) -> bool {
    let is_unanswered = match state.store.service_report(node) {
        ModelServiceReport::None | ModelServiceReport::Outdated => true,
        ModelServiceReport::Stopped
        | ModelServiceReport::Active
        | ModelServiceReport::Receiving
        | ModelServiceReport::HandingOver => false,
    };
    state.store.assignment.work.permits(node)
        && state.store.is_assigned(node)
        && is_unanswered
        && !state.node(node).is_spent
}

/// Returns the other writes that the agent may send.
fn report_writes(configuration: &Configuration, state: &State, node: NodeId) -> [Option<Write>; 5] {
    let machine = state.node(node);
    let nothing = [None; 5];
    match machine.phase {
        Phase::Clearing => {
            let verified =
                guards_nothing(state, node) || configuration.has_mutation(Mutation::AdoptWithoutPermit);
            let mut writes = nothing;
            writes[0] = verified.then_some(Write::Register(node));
            writes
        }
        Phase::Member if machine.is_registered => [
            may_ask(configuration, state, node).then_some(Write::Permit(node)),
            stopped_write(configuration, state, node),
            hand_over_write(configuration, state, node),
            running_write(configuration, state, node),
            may_shut_down_cleanly(configuration, state, node).then_some(Write::CleanShutdown(node)),
        ],
        Phase::Member | Phase::Dead | Phase::Resuming | Phase::Requested => nothing,
    }
}

/// Returns `true` if a start permit is possible: assigned, armed: true committed, the deadline acknowledged, now < D −
/// Ts, and no clean leave is pending that may still be applied.
fn may_ask(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let machine = state.node(node);
    let outdated = match machine.right {
        Right::None | Right::Start { current: false } | Right::Receive { current: false } => true,
        Right::Start { current: true } | Right::Receive { current: true } => false,
    };
    let guarded = state.store.node_report(node).armed
        && machine.follows()
        && machine.remaining() > configuration.bounds.margin;
    let early = configuration.has_mutation(Mutation::PermitBeforeArmed) && machine.watchdog != Watchdog::Off;
    let allowed = guarded || early || !state.store.exclusive;
    may_request_permit(state, node) && outdated && allowed && !state.is_late(Write::CleanShutdown(node))
}

/// Returns the report Stopped, Failed or HandedOver, which ends the right to start; `None` while a copy exists.
fn stopped_write(configuration: &Configuration, state: &State, node: NodeId) -> Option<Write> {
    // Only the action uid counts: a node that registered again also answers for the action of its former epoch.
    let is_named = state.store.assignment.work.names(node);
    let current = is_named
        && (state.store.is_assigned(node) || !configuration.has_mutation(Mutation::HandOverForgotten));
    let answer = state.store.service_report(node);
    let is_needed =
        answer.is_active() || (state.store.is_assigned(node) && answer == ModelServiceReport::None);
    (is_needed && state.node(node).is_empty()).then_some(Write::Stopped { node, current })
}

/// Returns the source's hand-over, once the target is ready.
fn hand_over_write(configuration: &Configuration, state: &State, node: NodeId) -> Option<Write> {
    let machine = state.node(node);
    let moving = state.store.assignment.work == Work::Move { from: node } && state.store.is_assigned(node);
    let answered = match state.store.service_report(node) {
        ModelServiceReport::None | ModelServiceReport::Outdated => false,
        ModelServiceReport::Stopped
        | ModelServiceReport::Active
        | ModelServiceReport::Receiving
        | ModelServiceReport::HandingOver => true,
    };
    let ready = state.store.service_report(other_node(node)) == ModelServiceReport::Receiving;
    let begins = configuration.migration && moving && !answered && ready;
    (begins && machine.service == Service::Running && machine.hand_over == HandOver::None)
        .then_some(Write::HandOver(node))
}

/// Returns the report that the service runs here after a migration, regardless of its outcome. A source sends this
/// report only after its driver has ended, or after the agent has decided not to start it (R8.12).
fn running_write(configuration: &Configuration, state: &State, node: NodeId) -> Option<Write> {
    let machine = state.node(node);
    let is_expected = match state.store.service_report(node) {
        ModelServiceReport::Receiving | ModelServiceReport::HandingOver => true,
        ModelServiceReport::None
        | ModelServiceReport::Stopped
        | ModelServiceReport::Active
        | ModelServiceReport::Outdated => false,
    };
    let has_ended = match machine.hand_over {
        HandOver::None => true,
        HandOver::Waiting { .. } => configuration.has_mutation(Mutation::BegunAfterGivingUp),
        HandOver::Driving => configuration.has_mutation(Mutation::ReportedWhileDriving),
    };
    let is_running = machine.service == Service::Running && has_ended;
    let current = state.store.is_assigned(node);
    (is_expected && is_running && current).then_some(Write::Running { node, current })
}

/// Returns `true` if a clean leave is possible: all stops were committed.
fn may_shut_down_cleanly(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let idle = state.node(node).is_empty() && !state.store.service_report(node).is_active();
    configuration.leave
        && idle
        && state.store.node_report(node).mode != Mode::Left
        && !state.has_unknown_permit(node)
}

pub(crate) fn apply_step(configuration: &Configuration, state: &mut State, node: NodeId, step: AgentStep) {
    let names = state.store.assignment.work.names(node);
    let armed = state.store.node_report(node).armed;
    let as_guarded = state.store.target_is_as_guarded(node);
    let is_moved = matches!(state.store.assignment.work, Work::Move { .. });
    let machine = state.node_mut(node);
    match step {
        AgentStep::Arm | AgentStep::PetWithoutDeadline => machine.watchdog = Watchdog::PetWithoutDeadline,
        AgentStep::LearnDeadline => learn_deadline(configuration, machine, armed),
        AgentStep::Release => machine.watchdog = Watchdog::Off,
        AgentStep::Commit(write) => {
            record_decision(configuration, machine, names, is_moved, write);
            names_candidates(state, node, write);
            apply(configuration, state, write, true);
        }
        AgentStep::Lose(write) => {
            record_decision(configuration, machine, names, is_moved, write);
            names_candidates(state, node, write);
            delay_write(state, write);
        }
        AgentStep::Begin => begin(machine),
        AgentStep::Stop => {
            machine.service = Service::Absent;
            machine.right = Right::None;
            machine.hand_over = HandOver::None;
            machine.is_spent = names;
        }
        AgentStep::NoticeClosed => {
            machine.phase = Phase::Clearing;
            machine.right = Right::None;
        }
        AgentStep::CheckTarget => {
            machine.hand_over = match machine.hand_over {
                HandOver::Waiting { lost, .. } if as_guarded => HandOver::Waiting { read: Some(0), lost },
                HandOver::None | HandOver::Waiting { .. } | HandOver::Driving => HandOver::None,
            };
        }
        AgentStep::BeginDriver => {
            let overdue = matches!(machine.hand_over, HandOver::Waiting { lost, .. } if lost >= configuration.bounds.margin);
            machine.hand_over = HandOver::Driving;
            if overdue {
                state.harm = Harm::BegunToLostTarget;
            }
        }
        AgentStep::EndHandOver => machine.hand_over = HandOver::None,
        AgentStep::Ask => hold::ask(state, node),
        AgentStep::HoldOn => {
            let age = machine.hold_request_age.take();
            if let (Watchdog::PetUntilDeadline { remaining, .. }, Some(age)) = (&mut machine.watchdog, age) {
                *remaining = (configuration.bounds.heartbeat_valid - age).max(*remaining);
            }
        }
        AgentStep::DropCandidates => hold::drop_gone(state, node),
        AgentStep::KeepAlive => {
            if let Watchdog::PetUntilDeadline { remaining, .. } = &mut machine.watchdog {
                *remaining = configuration.bounds.heartbeat_valid;
            }
        }
    }
}

/// Applies the immediate effect of sending a write, regardless of the outcome: after an answer Stopped or Failed, the
/// agent does not begin the action.
fn record_decision(
    configuration: &Configuration,
    machine: &mut Node,
    names: bool,
    is_moved: bool,
    write: Write,
) {
    match write {
        Write::Stopped { .. } => machine.is_spent = names,
        Write::HandOver(_) if configuration.has_mutation(Mutation::MigrateBeforeHandOver) => {
            machine.hand_over = HandOver::Driving;
        }
        // A reception is in the journal before its permit is sent.
        Write::Permit(_) => machine.receives |= configuration.ungated && is_moved,
        Write::Heartbeat(..)
        | Write::HandOver(_)
        | Write::Running { .. }
        | Write::Register(_)
        | Write::CleanShutdown(_)
        | Write::Close { .. }
        | Write::Release(..)
        | Write::Open(_)
        | Write::Assign { .. } => {}
    }
}

/// Updates the candidates that the agent asks. Before an agent sends a report that names the newest candidate, it
/// begins to ask all candidates. A new agent, or an agent in a new epoch, reads the candidates again.
fn names_candidates(state: &mut State, node: NodeId, write: Write) {
    match write {
        Write::Heartbeat(_, Change::Name) => hold::ask_all_present(state, node),
        Write::Heartbeat(_, Change::Create) => {
            hold::ask_all_present(state, node);
            hold::drop_gone(state, node);
        }
        Write::Heartbeat(_, Change::Keep | Change::Arm | Change::Disarm)
        | Write::Permit(_)
        | Write::Stopped { .. }
        | Write::HandOver(_)
        | Write::Running { .. }
        | Write::Register(_)
        | Write::CleanShutdown(_)
        | Write::Close { .. }
        | Write::Release(..)
        | Write::Open(_)
        | Write::Assign { .. } => {}
    }
}

/// Returns D = s + Th, as ticks from now.
fn validity_left(configuration: &Configuration, age: i8) -> i8 {
    match configuration.mutation {
        Some(Mutation::DeadlineFromReceipt) => configuration.bounds.heartbeat_valid,
        _ => configuration.bounds.heartbeat_valid - age,
    }
}

/// Returns `true` if the due answer would still extend a deadline. A daemon without a deadline (while arming or
/// staying) gets a deadline only when armed: true is committed and the deadline is late enough to be used.
pub(crate) fn extends_deadline(configuration: &Configuration, machine: &Node, armed: bool) -> bool {
    let Some(age) = machine.answer_due else { return false };
    // In this mutation, the deadline of an old answer depends on the time at which the agent reads the answer.
    if configuration.has_mutation(Mutation::DeadlineFromReceipt) {
        return true;
    }
    let gained = validity_left(configuration, age);
    match machine.watchdog {
        Watchdog::PetUntilDeadline { remaining, .. } | Watchdog::Unattended { remaining, .. } => {
            gained > remaining
        }
        Watchdog::PetWithoutDeadline => armed && gained > configuration.bounds.margin,
        Watchdog::Off => false,
    }
}

/// Sends the new deadline to the daemon, which acknowledges it.
fn learn_deadline(configuration: &Configuration, machine: &mut Node, armed: bool) {
    let useful = extends_deadline(configuration, machine, armed);
    let Some(age) = machine.answer_due.take() else { return };
    let gained = validity_left(configuration, age);
    match &mut machine.watchdog {
        Watchdog::PetUntilDeadline { remaining, .. } | Watchdog::Unattended { remaining, .. } => {
            *remaining = gained.max(*remaining);
        }
        Watchdog::PetWithoutDeadline => {
            if useful && armed {
                let timer = configuration.bounds.timeout;
                machine.watchdog =
                    Watchdog::PetUntilDeadline { timer, remaining: gained, decided_timeout: None };
            }
        }
        Watchdog::Off => {}
    }
}

/// Starts the service, or prepares to receive it. From now on it counts as running, even if its worker is slow.
fn begin(machine: &mut Node) {
    match machine.right {
        Right::None => {}
        Right::Start { current } => {
            machine.service = Service::Running;
            machine.is_spent |= current;
        }
        Right::Receive { current } => {
            machine.service = Service::Paused;
            machine.right = Right::None;
            machine.is_spent |= current;
        }
    }
}
