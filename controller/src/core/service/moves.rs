//! Moves of running services, live or as relocations, decided by the leader or requested by an operator.

use super::assign::{assign, start_on, stop_on};
use super::policy::{choose, why_nowhere};
use super::start::wants_stop;
use super::{Draft, Planner, Service, Standing, error, ordering, rebalance, recover, replacement};
use crate::core::pause;
use crate::core::placement::{may_move_live, not_live};
use ha_api_types::driver::DriverSpec;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, FenceState, Phase};
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_scheduler::filter::drives_away;
use ha_scheduler::{Placement, Turn, Verdict};
use std::collections::BTreeSet;

/// Moves a running service to its best node, or reports why it cannot leave its node.
pub(super) fn improve(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    placement: &Placement,
) {
    let Some(node) = draft.status.node.clone() else { return };
    let paused = planner.view.services.get(service.name).is_some_and(|facts| facts.paused);
    // Services with a positive affinity also wait for the end of the pause.
    if paused && let Some((since, length_ms)) = pause::of(&planner.situation, service.name) {
        draft.wake_after(since, length_ms, "retry of a failed move");
    }
    let driven: Vec<Reason> = match placement.verdicts.get(&node) {
        Some(Verdict::Refused(refusals)) => {
            refusals.iter().filter(|refusal| refusal.drives).map(|refusal| refusal.reason).collect()
        }
        Some(Verdict::Allowed(_)) => Vec::new(),
        // The node's object is deleted, which is no reason to move.
        None => return,
    };
    // A reason that only keeps new services away from a node moves no service.
    let stays = driven.is_empty() && matches!(placement.verdicts.get(&node), Some(Verdict::Refused(_)));
    let wanted = placement.node.clone().filter(|target| !stays && *target != node);
    let turn = planner.turns.get(service.name).cloned();
    let (target, makes_room) = match turn {
        Some(Turn::Go { to, makes_room_for })
            if to != node && matches!(placement.verdicts.get(&to), Some(Verdict::Allowed(_))) =>
        {
            (Some(to), makes_room_for)
        }
        Some(Turn::Hold { message }) if wanted.is_some() || !driven.is_empty() => {
            draft.wait(Reason::MovingForAntiAffinity, message);
            return;
        }
        Some(Turn::Blocked { message }) if wanted.is_none() && driven.is_empty() => {
            draft.blocked = true;
            draft.wait(Reason::MovingForAntiAffinity, message);
            return;
        }
        Some(Turn::Go { .. } | Turn::Hold { .. } | Turn::Blocked { .. }) | None => (wanted, BTreeSet::new()),
    };
    let reason = if driven.contains(&Reason::NodeInMaintenance) {
        Reason::Draining
    } else if driven.contains(&Reason::WatchdogFailed) {
        Reason::WatchdogFailed
    } else if !makes_room.is_empty() {
        Reason::MovingForAntiAffinity
    } else if driven.contains(&Reason::PositivePartner) || placement.reason == Reason::CurrentNode {
        // Most services with a positive affinity to this one are already on the target.
        Reason::PositivePartner
    } else if driven.is_empty() {
        placement.reason
    } else {
        Reason::PlacementChanged
    };
    let Some(target) = target else {
        if driven.is_empty() && rebalance::carry_out(planner, service, draft, placement) {
            return;
        }
        cannot_leave(service, draft, placement, &node, &driven, reason);
        return;
    };
    if reason == Reason::Preferred && partner_moves(planner, service) {
        return;
    }
    if paused {
        draft.say(Reason::MoveFailed, format!("Move to {target} failed, retrying later"));
        return;
    }
    let followed = follows(planner, service, &target);
    if begin(planner, service, draft, &target, true, reason) {
        draft.status.operation = None;
        if !makes_room.is_empty() {
            let names: Vec<&str> = makes_room.iter().map(ResourceName::as_str).collect();
            draft.message = format!("{}, to free capacity for {}", draft.message, names.join(", "));
        }
        if followed == Follows::Operator {
            draft.status.maintenance_node = None;
        } else if reason == Reason::Draining && driven.contains(&Reason::NodeInMaintenance) {
            draft.status.maintenance_node.get_or_insert(node);
        }
    }
}

/// Reports why a service that should leave its node cannot, with the reasons of each node and suggested actions.
fn cannot_leave(
    service: &Service<'_>,
    draft: &mut Draft,
    placement: &Placement,
    node: &NodeName,
    driven: &[Reason],
    reason: Reason,
) {
    // A companion that waits to move to this node reports that itself.
    let own = driven.iter().any(|reason| drives_away(*reason) || *reason == Reason::WatchdogFailed);
    if !own || placement.node.is_some() {
        return;
    }
    draft.infeasible = true;
    let message = format!(
        "{}, but the service cannot leave {node}. {}. Suggested actions: {}",
        reason.sentence(),
        why_nowhere(placement),
        suggested_actions(placement, service.name, node)
    );
    draft.wait(reason, message);
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
enum Follows {
    Nobody,
    /// A companion is moved by the leader.
    Partner,
    /// A companion is moved by an operator. The services then no longer return to their node from before maintenance.
    Operator,
}

fn follows(planner: &Planner<'_>, service: &Service<'_>, target: &NodeName) -> Follows {
    let statuses = &planner.situation.world.resource_statuses;
    let mut found = Follows::Nobody;
    for name in planner.view.rules.companions(service.name) {
        let moves_there = planner
            .view
            .services
            .get(&name)
            .is_some_and(|facts| facts.uses.len() > 1 && facts.heading() == Some(target));
        if !moves_there {
            continue;
        }
        let by_operator = statuses.get(&name).is_some_and(|status| status.value.operation.is_some())
            || planner.moved_by_operator.contains(&name);
        if by_operator {
            return Follows::Operator;
        }
        found = Follows::Partner;
    }
    found
}

/// Returns `true` if a target is eligible for a service and the companions that move with it.
pub(super) fn may_go_with_companions(placement: &Placement, target: &NodeName) -> bool {
    match placement.verdicts.get(target) {
        Some(Verdict::Allowed(_)) => true,
        Some(Verdict::Refused(_)) | None => false,
    }
}

/// Returns `true` if a service of the same rule is moving: then the preferred node is not decided yet.
fn partner_moves(planner: &Planner<'_>, service: &Service<'_>) -> bool {
    let rules = &planner.view.rules;
    rules.apart_from(service.name).chain(rules.together_with(service.name)).any(|partners| {
        partners
            .resources
            .iter()
            .filter(|name| name.as_str() != service.name)
            .any(|name| planner.view.services.get(name.as_str()).is_some_and(|facts| facts.uses.len() > 1))
    })
}

/// Begins a move to an eligible node. The move is live if requested, if the driver supports it, and if neither node
/// has too many moves in progress. Returns `false` if the move has not begun; the draft then names the condition to
/// wait for.
pub(super) fn begin(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    target: &NodeName,
    live: bool,
    reason: Reason,
) -> bool {
    let Some(node) = draft.status.node.clone() else { return false };
    let world = planner.situation.world;
    let driver = service.assignment.map(|assignment| &assignment.value.definition.driver);
    let can_migrate = driver.is_some_and(DriverSpec::can_migrate);
    // R8.18.
    let is_guarded = driver.is_some_and(|driver| {
        may_move_live(
            driver,
            &service.resource.value.spec,
            planner.nodes.get(target).is_some_and(|node| node.has_device),
        ) || !service.is_exclusive_in_force()
    });
    if live && can_migrate && is_guarded {
        let limit = usize::try_from(world.settings().max_migrations).unwrap_or(usize::MAX).max(1);
        for place in [&node, target] {
            if moves_at(planner, place) >= limit {
                draft.wait(
                    Reason::Waiting,
                    format!("{limit} live migrations in progress on {place}, limit reached (maxMigrations)"),
                );
                return false;
            }
        }
        let Some(fence) = world.fences.get(target).filter(|fence| fence.value.state == FenceState::Open)
        else {
            draft.wait(Reason::NodeNotOnline, format!("Node {target} is not registered"));
            return false;
        };
        let action = Action::Migrate {
            target: target.to_owned(),
            target_epoch: fence.value.epoch,
            target_boot_id: fence.value.boot_id.clone(),
        };
        if !assign(planner, service, draft, &node, action) {
            return false;
        }
        draft.status.target = Some(target.to_owned());
        let message = format!("Live-migrating from {node} to {target}: {}", reason.sentence());
        draft.go(ServiceState::Migrate, reason, message);
        return true;
    }
    if !ordering::way_is_clear(planner, service, draft) || !stop_on(planner, service, draft, &node) {
        return false;
    }
    draft.status.target = Some(target.to_owned());
    let mut message = format!("Relocating from {node} to {target}: {}", reason.sentence());
    if live && can_migrate {
        message = format!("{message} ({})", not_live(target));
    }
    draft.go(ServiceState::Relocate, reason, message);
    true
}

/// Returns the number of live migrations and replacements of secondaries in progress on a node, in either role,
/// including those of this plan.
pub(super) fn moves_at(planner: &Planner<'_>, node: &NodeName) -> usize {
    let world = planner.situation.world;
    let replacements = replacement::under_way_at(planner, node);
    let moves = planner
        .view
        .services
        .iter()
        .filter(|(_, facts)| facts.uses.len() > 1 && facts.uses.contains(node))
        .filter(|(name, facts)| match world.resource_statuses.get(*name).map(|status| status.value.state) {
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
        })
        .count();
    moves + replacements
}

/// Plans a service in relocation: it is being stopped, to be started elsewhere.
pub(super) fn relocate(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let situation = planner.situation;
    let Some((assignment, standing)) = service.assigned(&situation) else {
        draft.go(
            ServiceState::Queued,
            Reason::NotProbed,
            "Record of the assigned node is missing, asking every node whether the service runs there"
                .to_owned(),
        );
        return;
    };
    let node = assignment.node.clone();
    match standing {
        Standing::Closing | Standing::Released => {
            recover::lost(planner, service, draft, standing);
            return;
        }
        Standing::InForce => {}
    }
    match &assignment.action {
        Action::Stop { .. } => {}
        Action::Start | Action::Restart | Action::Migrate { .. } | Action::Leave => {
            draft.status.target = None;
            recover::settle(service, draft, assignment, service.phase(&situation));
            return;
        }
    }
    if recover::frozen(planner, draft, &node) {
        return;
    }
    if service.wanted() != RequestedState::Started {
        draft.status.target = None;
        draft.go(ServiceState::Stopping, Reason::Stopping, "Stop requested".to_owned());
        return;
    }
    match service.answer(&situation).map(|answer| &answer.value) {
        Some(report) if report.phase == Phase::StopFailed => {
            error::stop_failed(planner, service, draft, report);
        }
        Some(report) if matches!(report.phase, Phase::Stopped | Phase::Failed | Phase::HandedOver) => {
            arrive(planner, service, draft);
        }
        Some(_) | None => {
            planner.await_action(draft, &node, Reason::Relocating, format!("Stopping on {node}"));
        }
    }
}

/// Starts a stopped service on the target or, if the target is no longer eligible, on any eligible node. If no node
/// is eligible, the service waits without using the source or the target. Otherwise its companions would wait for
/// each other.
fn arrive(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    if wants_stop(service, draft) {
        return;
    }
    if let Some(message) = ordering::has_to_stop(planner, service) {
        draft.go(ServiceState::RequestStart, Reason::WaitingForDependency, message);
        return;
    }
    if let Some(message) = ordering::holds_start(planner, service) {
        draft.wait(Reason::WaitingForDependency, message);
        return;
    }
    let placement = choose(planner, service, draft);
    let target = draft.status.target.clone().filter(|target| {
        matches!(placement.verdicts.get(target), Some(Verdict::Allowed(_)))
            || draft.status.node.as_ref() == Some(target)
    });
    let Some(node) = target.or_else(|| placement.node.clone()) else {
        let gone = draft.status.target.take().unwrap_or_default();
        let message = format!("Stopped; {gone} is no longer eligible, scheduling on another node");
        draft.go(ServiceState::RequestStart, Reason::Relocating, message);
        return;
    };
    start_on(planner, service, draft, &node, Reason::Relocating);
}
