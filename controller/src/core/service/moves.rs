//! Moving a service that runs: live, or by stop and start; because the controller wants it or an operator asked.

use super::assign::{assign, start_on, stop_on};
use super::policy::{choose, nowhere, why_nowhere};
use super::start::wants_stop;
use super::{Draft, Planner, Service, Standing, error, recover};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, FenceState, Phase};
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_api_types::time::Millis;
use ha_scheduler::{Placement, Verdict};

/// The pause before a move that the controller wants is tried again: 10 s, 20 s, … up to an hour.
fn pause_ms(failures: u32) -> Millis {
    if failures == 0 { 0 } else { (10_000_u64 << (failures - 1).min(9)).min(3_600_000) }
}

/// Reasons for which a running service leaves its node. Others only keep new services away.
pub fn drives_away(reason: Reason) -> bool {
    [
        Reason::NodeInMaintenance,
        Reason::NotInGroup,
        Reason::NodeAffinity,
        Reason::NegativePartner,
        Reason::PositivePartner,
    ]
    .contains(&reason)
}

/// Moves a running service to where it should be, or says why it cannot leave.
pub(super) fn improve(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    placement: &Placement,
) {
    let Some(node) = draft.status.node.clone() else { return };
    if let Some(target) = follows_to(planner, service, &node) {
        if may_go_with_companions(planner, service, placement, &target) {
            begin(planner, service, draft, &target, true, Reason::PositivePartner);
        }
        return;
    }
    let driven: Vec<Reason> = match placement.verdicts.get(&node) {
        Some(Verdict::Refused(refusals)) => {
            let reasons: Vec<Reason> = refusals.iter().map(|refusal| refusal.reason).collect();
            let driven: Vec<Reason> = reasons.iter().copied().filter(|reason| drives_away(*reason)).collect();
            if driven.is_empty() {
                return;
            }
            driven
        }
        Some(Verdict::Allowed(_)) => Vec::new(),
        // The node's object is deleted: it is not a place to be moved by.
        None => return,
    };
    let partners_only =
        driven.iter().all(|reason| matches!(reason, Reason::NegativePartner | Reason::PositivePartner));
    if !driven.is_empty() && partners_only && partner_moves(planner, service) {
        draft.wait(Reason::Waiting, "a partner of a rule is moving".to_owned());
        return;
    }
    let relaxed;
    let placement = if placement.node.is_none() && driven.contains(&Reason::NodeInMaintenance) {
        relaxed = with_partners_following(planner, service, draft, &node);
        &relaxed
    } else {
        placement
    };
    let reason = if driven.contains(&Reason::NodeInMaintenance) {
        Reason::MaintenanceMove
    } else if driven.is_empty() {
        placement.reason
    } else {
        Reason::PlacementChanged
    };
    match &placement.node {
        None => {
            draft.infeasible = true;
            let message =
                format!("{}, but it cannot leave {node}: {}", reason.sentence(), why_nowhere(placement));
            draft.wait(reason, message);
        }
        Some(target) if *target == node => {}
        Some(target) => {
            let target = target.clone();
            let failures = draft.status.move_failures;
            let since = service.status.map_or(planner.situation.now.raw, |status| status.seen);
            if failures > 0 && planner.situation.now.raw < since + pause_ms(failures) {
                draft.wake_after(since, pause_ms(failures), "a move that failed is tried again");
                draft
                    .say(Reason::MoveFailed, format!("its move to {target} failed and is tried again later"));
                return;
            }
            if begin(planner, service, draft, &target, true, reason) {
                draft.status.operation = None;
                if reason == Reason::MaintenanceMove && driven.contains(&Reason::NodeInMaintenance) {
                    draft.status.maintenance_node.get_or_insert(node);
                }
            }
        }
    }
}

/// Where it could go if the services that must stay with it, and are where it is, follow it.
fn with_partners_following(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &Draft,
    node: &str,
) -> Placement {
    let followers: Vec<String> = planner
        .view
        .rules
        .together_with(service.name)
        .flat_map(|partners| partners.resources.iter().cloned())
        .filter(|name| name != service.name)
        .collect();
    let saved: Vec<_> = followers
        .into_iter()
        .filter_map(|name| {
            let facts = planner.view.services.get_mut(&name)?;
            (facts.uses.len() == 1 && facts.uses.contains(node))
                .then(|| (name, std::mem::take(&mut facts.uses)))
        })
        .collect();
    let placement = choose(planner, service, draft);
    for (name, uses) in saved {
        if let Some(facts) = planner.view.services.get_mut(&name) {
            facts.uses = uses;
        }
    }
    placement
}

/// Where a service that must stay with this one, and is where it is, is moving: it goes along.
fn follows_to(planner: &Planner<'_>, service: &Service<'_>, node: &str) -> Option<String> {
    let statuses = &planner.situation.world.resource_statuses;
    planner.view.rules.companions(service.name).into_iter().find_map(|name| {
        let status = &statuses.get(&name)?.value;
        let moves = matches!(status.state, ServiceState::Migrate | ServiceState::Relocate);
        let target = status.target.clone()?;
        (moves && status.node.as_deref() == Some(node) && target != node).then_some(target)
    })
}

/// Whether nothing but the places of its companions, which go along, speaks against a target.
pub(super) fn may_go_with_companions(
    planner: &Planner<'_>,
    service: &Service<'_>,
    placement: &Placement,
    target: &str,
) -> bool {
    match placement.verdicts.get(target) {
        Some(Verdict::Allowed(_)) => true,
        Some(Verdict::Refused(refusals)) => {
            !planner.view.rules.companions(service.name).is_empty()
                && refusals.iter().all(|refusal| refusal.reason == Reason::PositivePartner)
        }
        None => false,
    }
}

/// Whether a service of the same rule is on its way: then who has to make room is not decided yet.
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

/// Begins a move to a node that may take it. Live if asked, the driver can, and not too many moves are under way on
/// either node; `false`: not begun, and the draft says what it waits for.
pub(super) fn begin(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    target: &str,
    live: bool,
    reason: Reason,
) -> bool {
    let Some(node) = draft.status.node.clone() else { return false };
    let world = planner.situation.world;
    let can_migrate =
        service.assignment.is_some_and(|assignment| assignment.value.definition.driver.can_migrate());
    if live && can_migrate {
        let limit = usize::try_from(world.settings().max_migrations).unwrap_or(usize::MAX).max(1);
        for place in [node.as_str(), target] {
            if moves_at(planner, place) >= limit {
                draft.wait(Reason::Waiting, format!("{limit} live moves are under way on {place}"));
                return false;
            }
        }
        let Some(fence) = world.fences.get(target).filter(|fence| fence.value.state == FenceState::Open)
        else {
            draft.wait(Reason::NodeNotOnline, format!("node {target} has no open epoch"));
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
        let message = format!("it moves live from {node} to {target}: {}", reason.sentence());
        draft.go(ServiceState::Migrate, reason, message);
        return true;
    }
    if !stop_on(planner, service, draft, &node) {
        return false;
    }
    draft.status.target = Some(target.to_owned());
    let message = format!("it moves from {node} to {target} by stop and start: {}", reason.sentence());
    draft.go(ServiceState::Relocate, reason, message);
    true
}

/// Live moves under way on a node, in either role, those of this plan included.
fn moves_at(planner: &Planner<'_>, node: &str) -> usize {
    let world = planner.situation.world;
    planner
        .view
        .services
        .iter()
        .filter(|(_, facts)| facts.uses.len() > 1 && facts.uses.contains(node))
        .filter(|(name, _)| {
            world.resource_statuses.get(*name).is_none_or(|status| {
                status.value.state != ServiceState::Relocate && status.value.state != ServiceState::Fence
            })
        })
        .count()
}

/// It is being stopped to be started elsewhere.
pub(super) fn relocate(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let situation = planner.situation;
    let Some((assignment, standing)) = service.assigned(&situation) else {
        draft.go(ServiceState::Queued, Reason::NotProbed, "its assignment is gone".to_owned());
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
        draft.go(ServiceState::Stopping, Reason::Stopping, "it is not wanted running".to_owned());
        return;
    }
    match service.answer(&situation).map(|answer| &answer.value) {
        Some(report) if report.phase == Phase::StopFailed => {
            error::stop_failed(planner, service, draft, report);
        }
        Some(report) if matches!(report.phase, Phase::Stopped | Phase::Failed | Phase::HandedOver) => {
            arrive(planner, service, draft);
        }
        Some(_) | None => draft.wait(Reason::Relocating, format!("{node} is stopping it")),
    }
}

/// It is stopped: it starts on the target, or, if that cannot take it any more, wherever it can.
fn arrive(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    if wants_stop(service, draft) {
        return;
    }
    let placement = choose(planner, service, draft);
    let target = draft.status.target.clone().filter(|target| {
        matches!(placement.verdicts.get(target), Some(Verdict::Allowed(_)))
            || draft.status.node.as_deref() == Some(target.as_str())
    });
    let Some(node) = target.or_else(|| placement.node.clone()) else {
        nowhere(draft, &placement);
        return;
    };
    start_on(planner, service, draft, &node, Reason::Relocating);
}
