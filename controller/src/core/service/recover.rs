//! Fence, Recovery and Freeze: services whose node is lost or temporarily down.

use super::arranged::settled;
use super::assign::{start_on, stop_on};
use super::policy::choose;
use super::start::{partners_come_first, stops_first, wants_stop};
use super::{Draft, Planner, Service, Standing, ordering, preemption, queued};
use crate::core::health::{Health, NodeHealth};
use crate::core::situation::Situation;
use ha_api_types::cluster::ShutdownPolicy;
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment, FenceState, Leave, Mode, Phase, Proof};
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_api_types::time::{Millis, Mono};

/// Handles a closed epoch of the service's node: waits for the proof or for the node's return, or recovers the
/// service.
pub(super) fn lost(planner: &Planner<'_>, service: &Service<'_>, draft: &mut Draft, standing: Standing) {
    let situation = planner.situation;
    let node = service.assignment.map(|assignment| assignment.value.node.clone()).unwrap_or_default();
    match standing {
        // The service may run twice, so it is moved without a proof (FENCING, section 10).
        Standing::Closing if service.may_run_twice() => draft.go(
            ServiceState::Recovery,
            Reason::NodeFailed,
            format!("Node {node} is unreachable, scheduling on another node (exclusive: false)"),
        ),
        Standing::Closing => {
            if draft.status.state == ServiceState::Fence {
                draft.wait(Reason::Fencing, format!("Waiting for node {node} to be fenced"));
            } else {
                draft.go(
                    ServiceState::Fence,
                    Reason::Fencing,
                    format!("Node {node} failed and is being fenced"),
                );
            }
        }
        Standing::Released => {
            if let Some(assignment) = service.assignment
                && keeps_its_place(&situation, &assignment.value, Waits::Frozen)
            {
                draft.go(ServiceState::Freeze, Reason::Frozen, format!("Waiting for node {node} to return"));
                return;
            }
            draft.go(
                ServiceState::Recovery,
                Reason::Recovering,
                format!("Node {node} is confirmed down, scheduling on another node"),
            );
        }
        Standing::InForce => {}
    }
}

/// Waits for the service's node to be fenced.
pub(super) fn fence(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let situation = planner.situation;
    match service.assigned(&situation) {
        None => draft.go(
            ServiceState::Queued,
            Reason::NotProbed,
            "Record of the assigned node is missing, asking every node whether the service runs there"
                .to_owned(),
        ),
        // The source failed during a migration: the state of the target decides.
        Some((assignment, _)) if matches!(assignment.action, Action::Migrate { .. }) => {
            super::migrate::migrate(planner, service, draft);
        }
        Some((_, Standing::InForce)) => {
            let assignment =
                service.assignment.map(|assignment| assignment.value.clone()).unwrap_or_default();
            settle(service, draft, &assignment, service.phase(&situation));
        }
        Some((_, standing @ (Standing::Closing | Standing::Released))) => {
            lost(planner, service, draft, standing);
        }
    }
}

/// Schedules a service of which no copy runs.
pub(super) fn recovery(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    draft.status.target = None;
    match service.wanted() {
        RequestedState::Disabled => {
            wants_stop(service, draft);
        }
        RequestedState::Started if stops_first(planner, service, draft) => {}
        RequestedState::Started | RequestedState::Stopped if comes_back(planner, draft) => {}
        RequestedState::Started | RequestedState::Stopped => {
            if preemption::is_held_back(planner, draft) {
                return;
            }
            let held = ordering::holds_start(planner, service);
            if let Some(message) = held.filter(|_| service.wanted() == RequestedState::Started) {
                // A service that may run twice keeps running on a lost node. If that node is reachable again, the
                // service is adopted on it without a start, because a strict rule may place a dependency on the same
                // node.
                match service.runs_twice_on(&planner.situation) {
                    Some(node) if planner.nodes.get(node).is_some_and(NodeHealth::is_online) => {
                        start_on(planner, service, draft, node, Reason::Adopted);
                    }
                    Some(_) | None => draft.wait(Reason::WaitingForDependency, message),
                }
                return;
            }
            let chosen = choose(planner, service, draft);
            let (placement, for_others) = settled(planner, service, draft, chosen);
            let Some(node) = placement.node.clone() else {
                preemption::make_room(planner, service, draft, &placement);
                preemption::explain(draft, &placement);
                return;
            };
            if service.wanted() == RequestedState::Started {
                if partners_come_first(planner, service, draft, &node) {
                    return;
                }
                let displaced = draft.status.preempted_by.is_some();
                let reason = if displaced { Reason::Scheduled } else { Reason::Recovered };
                if start_on(planner, service, draft, &node, reason) {
                    draft.add_words(for_others);
                }
            } else if stop_on(planner, service, draft, &node) {
                draft.go(ServiceState::Stopped, Reason::Stopped, format!("Assigned to {node}"));
            }
        }
        RequestedState::Ignored => {}
    }
}

/// Takes no action on a frozen service until its agent is active again, or until the wait for its node has ended.
pub(super) fn freeze(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let situation = planner.situation;
    if situation.world.settings().disarmed.is_some() {
        draft.wait(Reason::Disarmed, "Cluster is disarmed".to_owned());
        return;
    }
    let Some((assignment, standing)) = service.assigned(&situation) else {
        draft.status.probe_arming = Some(situation.world.cluster_generation());
        queued::look_anew(&situation, service, draft);
        return;
    };
    let node = &assignment.node;
    match standing {
        Standing::Closing => lost(planner, service, draft, standing),
        Standing::Released => match planner.nodes.get(node).map(|node| &node.health) {
            Some(Health::Registering) => {
                draft.wait(Reason::Registering, format!("Waiting for node {node} to register"));
            }
            Some(Health::Online) => {
                if !wants_stop(service, draft) {
                    draft.go(
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
            | None => match waits_until(&situation, assignment, Waits::Frozen) {
                Some(until) if until.is_none_or(|at| situation.now.raw < at) => {
                    if let Some(at) = until {
                        draft.wake_after(at, 0, "a node that left has not returned");
                    }
                    draft.wait(Reason::Frozen, waiting_words(&situation, node));
                }
                Some(_) | None => {
                    let message = format!("Node {node} has not returned, scheduling on another node");
                    draft.go(ServiceState::Recovery, Reason::Recovering, message);
                }
            },
        },
        Standing::InForce => match planner.nodes.get(node).map(|node| &node.health) {
            Some(Health::Restarting) => {
                draft.wait(Reason::Frozen, format!("Agent of node {node} is restarting"));
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
            | None => settle(service, draft, assignment, service.phase(&situation)),
        },
    }
}

/// Waits, and returns `true`, if the service's old node is about to be admitted again, as after a power failure of a
/// whole cluster. That node is eligible again soon, so no other node is chosen before. The wait takes Th at most.
pub(super) fn comes_back(planner: &Planner<'_>, draft: &mut Draft) -> bool {
    let world = planner.situation.world;
    let Some(node) = draft.status.node.clone() else { return false };
    let registers = match planner.nodes.get(&node).map(|node| &node.health) {
        Some(Health::Registering) => true,
        Some(Health::Down(Proof::NewBoot { boot_id })) => {
            let asks = world.node_reports.get(&node).is_some_and(|report| {
                report.value.mode == Mode::Registering && report.value.boot_id == *boot_id
            });
            let valid_ms = world.heartbeat_valid_ms(&node);
            let closed = world.fences.get(&node).map(|fence| fence.seen).filter(|_| asks);
            let waits = closed.filter(|seen| planner.situation.now.raw < *seen + valid_ms);
            if let Some(seen) = waits {
                draft.wake_after(seen, valid_ms, "a node that asked to register again was not registered");
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
        draft.wait(Reason::Registering, format!("Waiting for previous node {node} to register"));
    }
    registers
}

/// Freezes the service if the agent of its node is down for a restart. Returns `true` if the service is frozen.
pub(super) fn frozen(planner: &Planner<'_>, draft: &mut Draft, node: &NodeName) -> bool {
    if planner.nodes.get(node).is_some_and(|node| node.health == Health::Restarting) {
        draft.go(ServiceState::Freeze, Reason::Frozen, format!("Agent of node {node} is restarting"));
        return true;
    }
    false
}

/// Sets the state that follows from an active assignment and its answer.
pub(super) fn settle(
    service: &Service<'_>,
    draft: &mut Draft,
    assignment: &Assignment,
    phase: Option<Phase>,
) {
    let node = &assignment.node;
    draft.status.node = Some(node.clone());
    draft.status.epoch = Some(assignment.epoch);
    draft.status.action_uid = Some(assignment.action_uid.clone());
    match &assignment.action {
        Action::Start | Action::Restart => {
            if phase == Some(Phase::Running) {
                draft.go(ServiceState::Started, Reason::Running, format!("Running on {node}"));
            } else {
                draft.go(ServiceState::Starting, Reason::Starting, format!("Starting on {node}"));
            }
        }
        Action::Stop { .. } => {
            if phase.is_some_and(|phase| !phase.may_run()) {
                if !wants_stop(service, draft) {
                    draft.go(ServiceState::RequestStart, Reason::Scheduled, "Start requested".to_owned());
                }
            } else {
                draft.go(ServiceState::Stopping, Reason::Stopping, format!("Stopping on {node}"));
            }
        }
        Action::Migrate { target, .. } => {
            draft.status.target = Some(target.clone());
            draft.go(ServiceState::Migrate, Reason::Migrating, format!("Migrating from {node} to {target}"));
        }
        Action::Leave => {
            draft.status.stop_confirmed = draft.status.stop_confirmed.or(Some(false));
            let confirmed = draft.status.stop_confirmed;
            draft.go(
                ServiceState::Error,
                Reason::StopFailed,
                "Service left unchanged after an error".to_owned(),
            );
            draft.status.stop_confirmed = confirmed;
        }
    }
}

/// Kind of service that waits for a node that left cleanly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// A service that ran there and is requested to run.
    Frozen,
    /// A service that stays stopped.
    Stopped,
}

/// Returns `true` if a service of a node that left cleanly waits for that node to return (SEMANTICS, section 7).
pub(super) fn keeps_its_place(situation: &Situation<'_>, assignment: &Assignment, waits: Waits) -> bool {
    waits_until(situation, assignment, waits)
        .is_some_and(|until| until.is_none_or(|at| situation.now.raw < at))
}

/// Returns for how long services wait for a node that left cleanly, under its shutdown policy; `None` for an unlimited
/// time.
fn wait_limit_ms(situation: &Situation<'_>, node: &NodeName) -> Option<Millis> {
    let timings = situation.world.timings();
    match situation.world.shutdown_policy(node) {
        ShutdownPolicy::Freeze => None,
        ShutdownPolicy::Failover => Some(timings.return_grace_ms),
        ShutdownPolicy::Conditional | ShutdownPolicy::Migrate => Some(timings.freeze_timeout_ms),
    }
}

/// Returns the condition that a frozen service waits for, and the command that ends the wait.
fn waiting_words(situation: &Situation<'_>, node: &NodeName) -> String {
    let Some(limit_ms) = wait_limit_ms(situation, node) else {
        return format!(
            "Waiting for node {node} to return. To run the service elsewhere, power {node} off and run \
             \"hactl node confirm-fenced {node}\""
        );
    };
    let policy = situation.world.shutdown_policy(node);
    format!(
        "Waiting up to {} s for node {node} to return (shutdownPolicy {policy:?}), then recovering on another node",
        limit_ms / 1000
    )
}

/// Returns the time until which a service waits for its node, which left cleanly. `None` if it does not wait,
/// `Some(None)` if it waits indefinitely.
///
/// The wait counts from when this process saw the epoch closed, so another leader repeats it in full.
#[allow(clippy::option_option, reason = "no wait and an unlimited wait are different values")]
fn waits_until(situation: &Situation<'_>, assignment: &Assignment, waits: Waits) -> Option<Option<Mono>> {
    let fence = situation.world.fences.get(&assignment.node)?;
    if fence.value.state != FenceState::Fenced {
        return None;
    }
    let Some(Proof::CleanLeave { leave }) = &fence.value.proof else { return None };
    match (situation.world.shutdown_policy(&assignment.node), leave, waits) {
        (ShutdownPolicy::Conditional | ShutdownPolicy::Migrate, Leave::Poweroff, _)
        | (ShutdownPolicy::Migrate, Leave::Reboot, Waits::Frozen) => None,
        // When running services move away, stopped services stay assigned to the node.
        (ShutdownPolicy::Conditional, Leave::Reboot, _)
        | (ShutdownPolicy::Migrate, Leave::Reboot, Waits::Stopped)
        | (ShutdownPolicy::Freeze | ShutdownPolicy::Failover, _, _) => {
            Some(wait_limit_ms(situation, &assignment.node).map(|limit_ms| fence.seen + limit_ms))
        }
    }
}
