//! Moves of running services, live or as relocations, decided by the leader or requested by an operator.

use super::assign::{assign, start_on, stop_on};
use super::policy::{best_placement, no_node_message};
use super::start::mark_stopped_if_unrequested;
use super::{EpochStatus, Planner, Service, ServiceUpdate, error, ordering, rebalance, recover, replacement};
use crate::core::pause;
use crate::core::placement::{may_move_live, not_live_message};
use ha_api_types::driver::DriverSpec;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, FenceState, Phase};
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_scheduler::filter::evicts;
use ha_scheduler::{MoveStep, Placement, Verdict};
use std::collections::BTreeSet;

/// Moves a running service to its best node, or reports why it cannot leave its node.
pub(super) fn move_if_better(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    placement: &Placement,
) {
    let Some(node) = update.status.node.clone() else { return };
    let paused = planner.view.services.get(service.name).is_some_and(|facts| facts.paused);
    // Services with a positive affinity also wait for the end of the pause.
    if paused && let Some((since, duration_ms)) = pause::pause_of(&planner.input, service.name) {
        update.wake_after(since, duration_ms, "a failed move is retried");
    }
    let reasons_to_leave: Vec<Reason> = match placement.verdicts.get(&node) {
        Some(Verdict::Refused(refusals)) => {
            refusals.iter().filter(|refusal| refusal.evicts_running).map(|refusal| refusal.reason).collect()
        }
        Some(Verdict::Allowed(_)) => Vec::new(),
        // The deletion of a Node object is not a reason to move a service.
        None => return,
    };
    // A reason that only keeps new services away from a node does not move running services.
    let refuses_only_new_services =
        reasons_to_leave.is_empty() && matches!(placement.verdicts.get(&node), Some(Verdict::Refused(_)));
    let better_node = placement.node.clone().filter(|target| !refuses_only_new_services && *target != node);
    let dependent_move = planner.dependent_moves.get(service.name).cloned();
    let (target, frees_capacity_for) = match dependent_move {
        Some(MoveStep::Move { to, makes_room_for })
            if to != node && matches!(placement.verdicts.get(&to), Some(Verdict::Allowed(_))) =>
        {
            (Some(to), makes_room_for)
        }
        Some(MoveStep::Wait { message }) if better_node.is_some() || !reasons_to_leave.is_empty() => {
            update.add_wait(Reason::MovingForAntiAffinity, message);
            return;
        }
        Some(MoveStep::Blocked { message }) if better_node.is_none() && reasons_to_leave.is_empty() => {
            update.is_deadlocked = true;
            update.add_wait(Reason::MovingForAntiAffinity, message);
            return;
        }
        Some(MoveStep::Move { .. } | MoveStep::Wait { .. } | MoveStep::Blocked { .. }) | None => {
            (better_node, BTreeSet::new())
        }
    };
    let reason = if reasons_to_leave.contains(&Reason::NodeInMaintenance) {
        Reason::Draining
    } else if reasons_to_leave.contains(&Reason::WatchdogFailed) {
        Reason::WatchdogFailed
    } else if !frees_capacity_for.is_empty() {
        Reason::MovingForAntiAffinity
    } else if reasons_to_leave.contains(&Reason::PositivePartner) || placement.reason == Reason::CurrentNode {
        // Most services with a positive affinity to this one are already on the target.
        Reason::PositivePartner
    } else if reasons_to_leave.is_empty() {
        placement.reason
    } else {
        Reason::PlacementChanged
    };
    let Some(target) = target else {
        if reasons_to_leave.is_empty() && rebalance::begin_planned_move(planner, service, update, placement) {
            return;
        }
        report_cannot_leave(service, update, placement, &node, &reasons_to_leave, reason);
        return;
    };
    if reason == Reason::Preferred && is_companion_moving(planner, service) {
        return;
    }
    if paused {
        update.set_message(Reason::MoveFailed, format!("Move to {target} failed, retrying later"));
        return;
    }
    let followed = followed_move(planner, service, &target);
    if begin(planner, service, update, &target, true, reason) {
        update.status.operation = None;
        if !frees_capacity_for.is_empty() {
            let names: Vec<&str> = frees_capacity_for.iter().map(ResourceName::as_str).collect();
            update.message = format!("{}, to free capacity for {}", update.message, names.join(", "));
        }
        if followed == FollowedMove::Operator {
            update.status.maintenance_node = None;
        } else if reason == Reason::Draining && reasons_to_leave.contains(&Reason::NodeInMaintenance) {
            update.status.maintenance_node.get_or_insert(node);
        }
    }
}

/// Reports why a service that should leave its node cannot, with the reasons of each node and suggested actions.
fn report_cannot_leave(
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    placement: &Placement,
    node: &NodeName,
    reasons_to_leave: &[Reason],
    reason: Reason,
) {
    // If a companion waits to move to this node, the companion reports the wait.
    let must_leave =
        reasons_to_leave.iter().any(|reason| evicts(*reason) || *reason == Reason::WatchdogFailed);
    if !must_leave || placement.node.is_some() {
        return;
    }
    update.is_stalled = true;
    let message = format!(
        "{}, but the service cannot leave {node}. {}. Suggested actions: {}",
        reason.sentence(),
        no_node_message(placement),
        suggested_actions(placement, service.name, node)
    );
    update.add_wait(reason, message);
}

/// Returns suggested actions that would let a service leave its node: the remedies of the other nodes, fewest first.
fn suggested_actions(placement: &Placement, name: &ResourceName, node: &NodeName) -> String {
    let mut remedies: Vec<(usize, String)> = placement
        .verdicts
        .iter()
        .filter(|(other, _)| *other != node)
        .filter_map(|(other, verdict)| match verdict {
            Verdict::Refused(refusals) => {
                let all: Vec<&str> = refusals.iter().map(|refusal| refusal.remedy.as_str()).collect();
                Some((refusals.len(), format!("{} (for {other})", all.join(" and "))))
            }
            Verdict::Allowed(_) => None,
        })
        .collect();
    remedies.sort();
    let mut help: Vec<String> = remedies.into_iter().take(3).map(|(_, remedy)| remedy).collect();
    help.push("add an eligible node".to_owned());
    help.push(format!("hactl stop {name}"));
    help.join("; or ")
}

/// Cause of the move of the companion that a service follows, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowedMove {
    None,
    /// A companion is moved by the leader.
    Companion,
    /// A companion is moved by an operator. The services then no longer return to their node from before maintenance.
    Operator,
}

fn followed_move(planner: &Planner<'_>, service: &Service<'_>, target: &NodeName) -> FollowedMove {
    let statuses = &planner.input.cluster_view.resource_statuses;
    let mut followed = FollowedMove::None;
    for name in planner.view.rules.strict_affinity_partners(service.name) {
        let moves_there = planner.view.services.get(&name).is_some_and(|facts| {
            facts.used_nodes.len() > 1 && facts.current_or_target_node() == Some(target)
        });
        if !moves_there {
            continue;
        }
        let by_operator = statuses.get(&name).is_some_and(|status| status.value.operation.is_some())
            || planner.moved_by_operator.contains(&name);
        if by_operator {
            return FollowedMove::Operator;
        }
        followed = FollowedMove::Companion;
    }
    followed
}

/// Returns `true` if a target is eligible for a service and the companions that move with it.
pub(super) fn is_eligible_with_companions(placement: &Placement, target: &NodeName) -> bool {
    match placement.verdicts.get(target) {
        Some(Verdict::Allowed(_)) => true,
        Some(Verdict::Refused(_)) | None => false,
    }
}

/// Returns `true` if a service of the same rule is moving; the preferred node is not decided yet in that case.
fn is_companion_moving(planner: &Planner<'_>, service: &Service<'_>) -> bool {
    let rules = &planner.view.rules;
    rules.anti_affinity_rules_of(service.name).chain(rules.affinity_rules_of(service.name)).any(|partners| {
        partners.resources.iter().filter(|name| name.as_str() != service.name).any(|name| {
            planner.view.services.get(name.as_str()).is_some_and(|facts| facts.used_nodes.len() > 1)
        })
    })
}

/// Begins a move to an eligible node. The move is live if requested, if the driver supports it, and if neither node
/// has too many moves in progress. Returns `false` if the move has not begun; the draft then names the condition to
/// wait for.
pub(super) fn begin(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    target: &NodeName,
    live: bool,
    reason: Reason,
) -> bool {
    let Some(node) = update.status.node.clone() else { return false };
    let cluster_view = planner.input.cluster_view;
    let driver = service.assignment.map(|assignment| &assignment.value.definition.driver);
    let can_migrate = driver.is_some_and(DriverSpec::can_migrate);
    // R8.18: a live migration with an ungated driver may need a fence device at the target.
    let is_guarded = driver.is_some_and(|driver| {
        may_move_live(
            driver,
            &service.resource.value.spec,
            planner.nodes.get(target).is_some_and(|node| node.has_device),
        ) || !service.is_assigned_exclusive()
    });
    if live && can_migrate && is_guarded {
        let limit = usize::try_from(cluster_view.settings().max_migrations).unwrap_or(usize::MAX).max(1);
        for place in [&node, target] {
            if moves_in_progress_on(planner, place) >= limit {
                update.add_wait(
                    Reason::Waiting,
                    format!("{limit} live migrations in progress on {place}, limit reached (maxMigrations)"),
                );
                return false;
            }
        }
        let Some(fence) =
            cluster_view.fences.get(target).filter(|fence| fence.value.state == FenceState::Open)
        else {
            update.add_wait(Reason::NodeNotOnline, format!("Node {target} is not registered"));
            return false;
        };
        let action = Action::Migrate {
            target: target.to_owned(),
            target_epoch: fence.value.epoch,
            target_boot_id: fence.value.boot_id.clone(),
        };
        if !assign(planner, service, update, &node, action) {
            return false;
        }
        update.status.target = Some(target.to_owned());
        let message = format!("Live-migrating from {node} to {target}: {}", reason.sentence());
        update.transition_to(ServiceState::Migrate, reason, message);
        return true;
    }
    if let Some(message) =
        ordering::unscheduled_dependency(planner, service.name).filter(|_| is_optional(reason))
    {
        // The service would not start again on the target.
        update.add_wait(Reason::WaitingForDependency, format!("Move to {target} is deferred: {message}"));
        return false;
    }
    if !ordering::stop_dependents_first(planner, service, update) || !stop_on(planner, service, update, &node)
    {
        return false;
    }
    update.status.target = Some(target.to_owned());
    let mut message = format!("Relocating from {node} to {target}: {}", reason.sentence());
    if live && can_migrate {
        message = format!("{message} ({})", not_live_message(target));
    }
    update.transition_to(ServiceState::Relocate, reason, message);
    true
}

/// Returns `true` if a move only improves the placement, so that the service may also stay where it runs.
fn is_optional(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Preferred | Reason::Failback | Reason::ReturningFromMaintenance | Reason::Rebalanced
    )
}

/// Returns the number of live migrations and replacements of secondaries in progress on a node, in either role,
/// including those of this plan.
pub(super) fn moves_in_progress_on(planner: &Planner<'_>, node: &NodeName) -> usize {
    let cluster_view = planner.input.cluster_view;
    let replacements = replacement::replacements_in_progress_on(planner, node);
    let moves = planner
        .view
        .services
        .iter()
        .filter(|(_, facts)| facts.used_nodes.len() > 1 && facts.used_nodes.contains(node))
        .filter(|(name, facts)| {
            match cluster_view.resource_statuses.get(*name).map(|status| status.value.state) {
                Some(ServiceState::Migrate) => true,
                Some(ServiceState::Relocate | ServiceState::Fence) => false,
                Some(
                    ServiceState::Queued
                    | ServiceState::RequestStart
                    | ServiceState::Starting
                    | ServiceState::Started
                    | ServiceState::RequestStop
                    | ServiceState::Stopping
                    | ServiceState::Stopped
                    | ServiceState::Recovery
                    | ServiceState::Freeze
                    | ServiceState::Error
                    | ServiceState::Disabled
                    | ServiceState::Ignored
                    | ServiceState::Deleting,
                )
                | None => facts.moves_live,
            }
        })
        .count();
    moves + replacements
}

/// Plans a service in relocation: it is being stopped, to be started elsewhere.
pub(super) fn relocate(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let input = planner.input;
    let Some((assignment, epoch_status)) = service.assignment_with_epoch(&input) else {
        update.transition_to(
            ServiceState::Queued,
            Reason::NotProbed,
            "Record of the assigned node is missing, asking every node whether the service runs there"
                .to_owned(),
        );
        return;
    };
    let node = assignment.node.clone();
    match epoch_status {
        EpochStatus::Closing | EpochStatus::Released => {
            recover::handle_closed_epoch(planner, service, update, epoch_status);
            return;
        }
        EpochStatus::Active => {}
    }
    match &assignment.action {
        Action::Stop { .. } => {}
        Action::Start | Action::Restart | Action::Migrate { .. } | Action::DoNothing => {
            update.status.target = None;
            recover::resume_from_assignment(service, update, assignment, service.phase(&input));
            return;
        }
    }
    if recover::freeze_if_agent_restarts(planner, update, &node) {
        return;
    }
    if service.requested_state() != RequestedState::Started {
        update.status.target = None;
        update.transition_to(ServiceState::Stopping, Reason::Stopping, "Stop requested".to_owned());
        return;
    }
    match service.answer(&input).map(|answer| &answer.value) {
        Some(report) if report.phase == Phase::StopFailed => {
            error::stop_failed(planner, service, update, report);
        }
        Some(report) if matches!(report.phase, Phase::Stopped | Phase::Failed | Phase::HandedOver) => {
            start_on_target(planner, service, update);
        }
        Some(_) | None => {
            planner.await_action(update, &node, Reason::Relocating, format!("Stopping on {node}"));
        }
    }
}

/// Starts a stopped service on the target or, if the target is no longer eligible, on any eligible node. If no node is
/// eligible, the service waits and uses neither the source nor the target. If it used one of them, its companions could
/// wait for each other.
fn start_on_target(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    if mark_stopped_if_unrequested(service, update) {
        return;
    }
    if let Some(message) = ordering::stop_reason(planner, service) {
        update.transition_to(ServiceState::RequestStart, Reason::WaitingForDependency, message);
        return;
    }
    if ordering::leave_node_for_dependency(planner, service, update) {
        return;
    }
    if let Some(message) = ordering::start_blocker(planner, service) {
        update.add_wait(Reason::WaitingForDependency, message);
        return;
    }
    let placement = best_placement(planner, service, update);
    let target = update.status.target.clone().filter(|target| {
        matches!(placement.verdicts.get(target), Some(Verdict::Allowed(_)))
            || update.status.node.as_ref() == Some(target)
    });
    let Some(node) = target.or_else(|| placement.node.clone()) else {
        let old_target = update.status.target.take().unwrap_or_default();
        let message = format!("Stopped; {old_target} is no longer eligible, scheduling on another node");
        update.transition_to(ServiceState::RequestStart, Reason::Relocating, message);
        return;
    };
    start_on(planner, service, update, &node, Reason::Relocating);
}
