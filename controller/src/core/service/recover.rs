//! Fence, Recovery and Freeze: services whose node is lost or temporarily down.

use super::assign::{start_on, stop_on};
use super::joint_placement::resolve_placement;
use super::policy::best_placement;
use super::start::{mark_stopped_if_unrequested, stop_found_copy, wait_for_companions};
use super::{EpochStatus, Planner, Service, ServiceUpdate, ordering, preemption, queued};
use crate::core::health::{Health, NodeHealth};
use crate::core::plan_input::PlanInput;
use ha_api_types::cluster::ShutdownPolicy;
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment, FenceState, Mode, Phase, Proof, ShutdownKind};
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_api_types::time::{Millis, MonotonicTime};

/// Handles a closed epoch of the service's node: waits for the proof or for the node's return, or recovers the
/// service.
pub(super) fn handle_closed_epoch(
    planner: &Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    epoch_status: EpochStatus,
) {
    let input = planner.input;
    let node = service.assignment.map(|assignment| assignment.value.node.clone()).unwrap_or_default();
    match epoch_status {
        // The service may run twice, so it is moved without a proof (FENCING, section 10).
        EpochStatus::Closing if service.may_run_twice() => update.transition_to(
            ServiceState::Recovery,
            Reason::NodeFailed,
            format!("Node {node} is unreachable, scheduling on another node (exclusive: false)"),
        ),
        EpochStatus::Closing => {
            if update.status.state == ServiceState::Fence {
                update.add_wait(Reason::Fencing, format!("Waiting for node {node} to be fenced"));
            } else {
                update.transition_to(
                    ServiceState::Fence,
                    Reason::Fencing,
                    format!("Node {node} failed and is being fenced"),
                );
            }
        }
        EpochStatus::Released => {
            if let Some(assignment) = service.assignment
                && waits_for_node_return(&input, &assignment.value, ReturnWaiter::Frozen)
            {
                update.transition_to(
                    ServiceState::Freeze,
                    Reason::Frozen,
                    format!("Waiting for node {node} to return"),
                );
                return;
            }
            update.transition_to(
                ServiceState::Recovery,
                Reason::Recovering,
                format!("Node {node} is confirmed down, scheduling on another node"),
            );
        }
        EpochStatus::Active => {}
    }
}

/// Waits for the service's node to be fenced.
pub(super) fn fence(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let input = planner.input;
    match service.assignment_with_epoch(&input) {
        None => update.transition_to(
            ServiceState::Queued,
            Reason::NotProbed,
            "Record of the assigned node is missing, asking every node whether the service runs there"
                .to_owned(),
        ),
        // The source failed during a migration: the state of the target decides.
        Some((assignment, _)) if matches!(assignment.action, Action::Migrate { .. }) => {
            super::migrate::migrate(planner, service, update);
        }
        Some((_, EpochStatus::Active)) => {
            let assignment =
                service.assignment.map(|assignment| assignment.value.clone()).unwrap_or_default();
            resume_from_assignment(service, update, &assignment, service.phase(&input));
        }
        Some((_, epoch_status @ (EpochStatus::Closing | EpochStatus::Released))) => {
            handle_closed_epoch(planner, service, update, epoch_status);
        }
    }
}

/// Schedules a service of which no copy runs.
pub(super) fn recovery(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    update.status.target = None;
    match service.requested_state() {
        RequestedState::Disabled => {
            mark_stopped_if_unrequested(service, update);
        }
        RequestedState::Started if stop_found_copy(planner, service, update) => {}
        RequestedState::Started | RequestedState::Stopped if wait_for_registration(planner, update) => {}
        RequestedState::Started | RequestedState::Stopped => {
            if preemption::waits_for_preempting_service(planner, update) {
                return;
            }
            let start_blocker = ordering::start_blocker(planner, service);
            if let Some(message) =
                start_blocker.filter(|_| service.requested_state() == RequestedState::Started)
            {
                // A strict rule may place the dependency on the node of the copy.
                if !adopt_copy(planner, service, update) {
                    update.add_wait(Reason::WaitingForDependency, message);
                }
                return;
            }
            let chosen = best_placement(planner, service, update);
            let (placement, explanation) = resolve_placement(planner, service, update, chosen);
            let Some(node) = placement.node.clone() else {
                let is_started = service.requested_state() == RequestedState::Started;
                if !(is_started && adopt_copy(planner, service, update)) {
                    preemption::preempt_or_wait(planner, service, update, &placement);
                    preemption::explain_preemption(update, &placement);
                }
                return;
            };
            if service.requested_state() == RequestedState::Started {
                if wait_for_companions(planner, service, update, &node) {
                    return;
                }
                let displaced = update.status.preempted_by.is_some();
                let reason = if displaced { Reason::Scheduled } else { Reason::Recovered };
                if start_on(planner, service, update, &node, reason) {
                    update.append_message(explanation);
                }
            } else if stop_on(planner, service, update, &node) {
                update.transition_to(ServiceState::Stopped, Reason::Stopped, format!("Assigned to {node}"));
            }
        }
        RequestedState::Ignored => {}
    }
}

/// Adopts a copy that still runs on a node that is reachable again, and returns `true` if there is such a copy. Only a
/// service that may run twice kept running there. Like any running service, it stays on a node that its rules exclude
/// until another node is eligible.
fn adopt_copy(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) -> bool {
    let copy = service
        .node_running_non_exclusive(&planner.input)
        .filter(|node| planner.nodes.get(*node).is_some_and(NodeHealth::is_online));
    let Some(node) = copy else { return false };
    start_on(planner, service, update, node, Reason::Adopted);
    true
}

/// Takes no action on a frozen service until its agent is active again, or until the wait for its node has ended.
pub(super) fn freeze(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let input = planner.input;
    if input.cluster_view.settings().disarmed.is_some() {
        update.add_wait(Reason::Disarmed, "Cluster is disarmed".to_owned());
        return;
    }
    let Some((assignment, epoch_status)) = service.assignment_with_epoch(&input) else {
        update.status.probe_arming = Some(input.cluster_view.cluster_generation());
        queued::probe_all_nodes(&input, service, update);
        return;
    };
    let node = &assignment.node;
    match epoch_status {
        EpochStatus::Closing => handle_closed_epoch(planner, service, update, epoch_status),
        EpochStatus::Released => match planner.nodes.get(node).map(|node| &node.health) {
            Some(Health::Registering) => {
                update.add_wait(Reason::Registering, format!("Waiting for node {node} to register"));
            }
            Some(Health::Online) => {
                if !mark_stopped_if_unrequested(service, update) {
                    update.transition_to(
                        ServiceState::RequestStart,
                        Reason::Scheduled,
                        format!("Node {node} has returned"),
                    );
                }
            }
            Some(
                Health::Late
                | Health::ShuttingDown(_)
                | Health::Restarting
                | Health::Leaving(_)
                | Health::Unregistered
                | Health::Fencing
                | Health::Down(_),
            )
            | None => match return_deadline(&input, assignment, ReturnWaiter::Frozen) {
                Some(until) if until.is_none_or(|at| input.now.monotonic_raw < at) => {
                    if let Some(at) = until {
                        update.wake_after(at, 0, "a node that left has not returned");
                    }
                    update.add_wait(Reason::Frozen, return_wait_message(&input, node));
                }
                Some(_) | None => {
                    let message = format!("Node {node} has not returned, scheduling on another node");
                    update.transition_to(ServiceState::Recovery, Reason::Recovering, message);
                }
            },
        },
        EpochStatus::Active => match planner.nodes.get(node).map(|node| &node.health) {
            Some(Health::Restarting) => {
                update.add_wait(Reason::Frozen, format!("Agent of node {node} is restarting"));
            }
            Some(
                Health::Online
                | Health::ShuttingDown(_)
                | Health::Late
                | Health::Registering
                | Health::Leaving(_)
                | Health::Unregistered
                | Health::Fencing
                | Health::Down(_),
            )
            | None => resume_from_assignment(service, update, assignment, service.phase(&input)),
        },
    }
}

/// Waits, and returns `true`, if the service's old node is about to be admitted again, as after a power failure of a
/// whole cluster. That node is eligible again soon, so the service is not scheduled on another node during the wait.
/// The wait takes at most Th.
pub(super) fn wait_for_registration(planner: &Planner<'_>, update: &mut ServiceUpdate) -> bool {
    let cluster_view = planner.input.cluster_view;
    let Some(node) = update.status.node.clone() else { return false };
    let registers = match planner.nodes.get(&node).map(|node| &node.health) {
        Some(Health::Registering) => true,
        Some(Health::Down(Proof::NewBoot { boot_id })) => {
            let asks = cluster_view.node_reports.get(&node).is_some_and(|report| {
                report.value.mode == Mode::Registering && report.value.boot_id == *boot_id
            });
            let valid_ms = cluster_view.heartbeat_valid_ms(&node);
            let closed = cluster_view.fences.get(&node).map(|fence| fence.first_seen_at).filter(|_| asks);
            let waits = closed.filter(|closed_at| planner.input.now.monotonic_raw < *closed_at + valid_ms);
            if let Some(closed_at) = waits {
                update.wake_after(
                    closed_at,
                    valid_ms,
                    "a node that asked to register again was not registered",
                );
            }
            waits.is_some()
        }
        Some(
            Health::Unregistered
            | Health::Online
            | Health::Late
            | Health::ShuttingDown(_)
            | Health::Restarting
            | Health::Leaving(_)
            | Health::Fencing
            | Health::Down(_),
        )
        | None => false,
    };
    if registers {
        update.add_wait(Reason::Registering, format!("Waiting for previous node {node} to register"));
    }
    registers
}

/// Freezes the service if the agent of its node is down for a restart. Returns `true` if the service is frozen.
pub(super) fn freeze_if_agent_restarts(
    planner: &Planner<'_>,
    update: &mut ServiceUpdate,
    node: &NodeName,
) -> bool {
    if planner.nodes.get(node).is_some_and(|node| node.health == Health::Restarting) {
        update.transition_to(
            ServiceState::Freeze,
            Reason::Frozen,
            format!("Agent of node {node} is restarting"),
        );
        return true;
    }
    false
}

/// Sets the state that follows from an active assignment and its answer.
pub(super) fn resume_from_assignment(
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    assignment: &Assignment,
    phase: Option<Phase>,
) {
    let node = &assignment.node;
    update.status.node = Some(node.clone());
    update.status.epoch = Some(assignment.epoch);
    update.status.action_uid = Some(assignment.action_uid.clone());
    match &assignment.action {
        Action::Start | Action::Restart => {
            if phase == Some(Phase::Running) {
                update.transition_to(ServiceState::Started, Reason::Running, format!("Running on {node}"));
            } else {
                update.transition_to(ServiceState::Starting, Reason::Starting, format!("Starting on {node}"));
            }
        }
        Action::Stop { .. } => {
            if phase.is_some_and(|phase| !phase.may_run()) {
                if !mark_stopped_if_unrequested(service, update) {
                    update.transition_to(
                        ServiceState::RequestStart,
                        Reason::Scheduled,
                        "Start requested".to_owned(),
                    );
                }
            } else {
                update.transition_to(ServiceState::Stopping, Reason::Stopping, format!("Stopping on {node}"));
            }
        }
        Action::Migrate { target, .. } => {
            update.status.target = Some(target.clone());
            update.transition_to(
                ServiceState::Migrate,
                Reason::Migrating,
                format!("Migrating from {node} to {target}"),
            );
        }
        Action::DoNothing => {
            update.status.stop_confirmed = update.status.stop_confirmed.or(Some(false));
            let confirmed = update.status.stop_confirmed;
            update.transition_to(
                ServiceState::Error,
                Reason::StopFailed,
                "Service left unchanged after an error".to_owned(),
            );
            update.status.stop_confirmed = confirmed;
        }
    }
}

/// Kind of service that waits for a node that left cleanly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReturnWaiter {
    /// A service that ran on that node and is requested to run.
    Frozen,
    /// A service that stays stopped.
    Stopped,
}

/// Returns `true` if a service of a node that left cleanly waits for that node to return, according to
/// `shutdownPolicy`.
pub(super) fn waits_for_node_return(
    input: &PlanInput<'_>,
    assignment: &Assignment,
    waiter: ReturnWaiter,
) -> bool {
    return_deadline(input, assignment, waiter)
        .is_some_and(|until| until.is_none_or(|at| input.now.monotonic_raw < at))
}

/// Returns for how long services wait for a node that left cleanly, under its shutdown policy; `None` for an unlimited
/// time.
fn wait_limit_ms(input: &PlanInput<'_>, node: &NodeName) -> Option<Millis> {
    let timings = input.cluster_view.timings();
    match input.cluster_view.shutdown_policy(node) {
        ShutdownPolicy::Freeze => None,
        ShutdownPolicy::Failover => Some(timings.return_grace_ms),
        ShutdownPolicy::Conditional | ShutdownPolicy::Migrate => Some(timings.freeze_timeout_ms),
    }
}

/// Returns the condition that a frozen service waits for, and the command that ends the wait.
fn return_wait_message(input: &PlanInput<'_>, node: &NodeName) -> String {
    let Some(limit_ms) = wait_limit_ms(input, node) else {
        return format!(
            "Waiting for node {node} to return. To run the service elsewhere, power {node} off and run \
             \"hactl node confirm-fenced {node}\""
        );
    };
    let policy = input.cluster_view.shutdown_policy(node);
    format!(
        "Waiting up to {} s for node {node} to return (shutdownPolicy {policy:?}), then recovering on another node",
        limit_ms / 1000
    )
}

/// Returns the time until which a service waits for its node, which left cleanly. `None` if it does not wait,
/// `Some(None)` if it waits indefinitely.
///
/// The wait counts from the time at which this process saw the epoch closed, so another leader repeats the wait in
/// full.
#[allow(clippy::option_option, reason = "no wait and an unlimited wait are different values")]
fn return_deadline(
    input: &PlanInput<'_>,
    assignment: &Assignment,
    waiter: ReturnWaiter,
) -> Option<Option<MonotonicTime>> {
    let fence = input.cluster_view.fences.get(&assignment.node)?;
    if fence.value.state != FenceState::Fenced {
        return None;
    }
    let Some(Proof::CleanLeave { shutdown_kind }) = &fence.value.proof else { return None };
    match (input.cluster_view.shutdown_policy(&assignment.node), shutdown_kind, waiter) {
        (ShutdownPolicy::Conditional | ShutdownPolicy::Migrate, ShutdownKind::Poweroff, _)
        | (ShutdownPolicy::Migrate, ShutdownKind::Reboot, ReturnWaiter::Frozen) => None,
        // When running services move away, stopped services stay assigned to the node.
        (ShutdownPolicy::Conditional, ShutdownKind::Reboot, _)
        | (ShutdownPolicy::Migrate, ShutdownKind::Reboot, ReturnWaiter::Stopped)
        | (ShutdownPolicy::Freeze | ShutdownPolicy::Failover, _, _) => {
            Some(wait_limit_ms(input, &assignment.node).map(|limit_ms| fence.first_seen_at + limit_ms))
        }
    }
}
