//! Preemption: a service without an eligible node makes services of lower priority leave (SEMANTICS, section 4).
//!
//! Only the published status is remembered. Each plan computes again which services must leave, higher priority
//! first, and keeps the capacity free until the service has started. Preempted services are stopped like any others.
//! The service starts only after their confirmed stop, because until then they use the node.

use super::policy::{nowhere, why_nowhere};
use super::{Draft, Planner, Service};
use crate::core::placement::service_facts;
use crate::core::plan::Subject;
use ha_api_types::id::ResourceName;
use ha_api_types::reason::Reason;
use ha_api_types::record::Action;
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_scheduler::{Placement, Wish, preempt};
use std::collections::BTreeSet;

/// Reason why a service must leave.
#[derive(Clone, Debug)]
pub(super) struct Displacement {
    /// The service that needs the capacity.
    by: ResourceName,
    priority: i32,
}

/// Handles a service without an eligible node: it waits and reports why. If the settings allow it, it waits for
/// services of lower priority to leave.
pub(super) fn make_room(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    placement: &Placement,
) {
    if !planner.view.settings.preemption || service.wanted() != RequestedState::Started {
        nowhere(draft, placement);
        return;
    }
    let mut facts = service_facts(planner.situation.world, &service.resource.value, &draft.status);
    facts.uses.clear();
    let with = companions_without_place(planner, service);
    let leaving = leaving(planner, service);
    let displaceable = displaceable(planner, service);
    let wish = Wish {
        name: service.name,
        service: &facts,
        with: &with,
        displaceable: &displaceable,
        leaving: &leaving,
    };
    let Some(found) = preempt(&planner.view, placement, &wish) else {
        nowhere(draft, placement);
        return;
    };
    let priority = service.resource.value.spec.priority;
    for victim in &found.victims {
        let displacement = Displacement { by: service.name.clone(), priority };
        planner.displaced.insert(victim.clone(), displacement);
    }
    let node = found.node;
    let mut makes_room: Vec<String> = found.victims.iter().map(|name| shown(planner, name)).collect();
    let on_their_way = leaving
        .iter()
        .filter(|name| planner.view.services.get(*name).is_some_and(|facts| facts.uses.contains(&node)));
    makes_room.extend(on_their_way.map(|name| shown(planner, name)));
    makes_room.sort();
    let message = format!("Waiting for preempted services to stop on {node}: {}", makes_room.join(", "));
    draft.wait(Reason::Preempting, message);
    draft.reserves = Some(node);
}

fn shown(planner: &Planner<'_>, name: &ResourceName) -> String {
    let priority = planner.view.services.get(name).map_or(0, |facts| facts.priority);
    format!("{name} (priority {priority})")
}

/// Returns the companions that are requested to run and have no node either, or leave theirs.
pub(super) fn companions_without_place(
    planner: &Planner<'_>,
    service: &Service<'_>,
) -> BTreeSet<ResourceName> {
    let world = planner.situation.world;
    let companions = planner.view.rules.companions(service.name);
    companions
        .into_iter()
        .filter(|name| {
            let wanted = world
                .resources
                .get(name)
                .is_some_and(|other| other.value.spec.state == RequestedState::Started);
            let uses_none = planner.view.services.get(name).is_some_and(|facts| facts.uses.is_empty());
            let state = world.resource_statuses.get(name).map(|status| status.value.state);
            let looks_for_one = matches!(state, Some(ServiceState::RequestStart | ServiceState::Recovery));
            let leaves = matches!(state, Some(ServiceState::RequestStop | ServiceState::Stopping));
            wanted && ((looks_for_one && uses_none) || leaves)
        })
        .collect()
}

/// Returns `true` if the service was preempted by a service with a write in progress. Until that write is seen, the
/// freed capacity is not available.
pub(super) fn is_held_back(planner: &Planner<'_>, draft: &Draft) -> bool {
    let Some(by) = &draft.status.preempted_by else { return false };
    planner.situation.busy.contains(&Subject::Service(by.clone()))
}

/// Returns the other services that are being stopped, or must leave in this plan.
fn leaving(planner: &Planner<'_>, service: &Service<'_>) -> BTreeSet<ResourceName> {
    let statuses = planner.situation.world.resource_statuses.iter();
    statuses
        .filter(|(_, status)| {
            matches!(status.value.state, ServiceState::RequestStop | ServiceState::Stopping)
                && status.value.stop_confirmed != Some(false)
        })
        .map(|(name, _)| name.clone())
        .chain(planner.displaced.keys().cloned())
        .filter(|name| name != service.name)
        .collect()
}

/// Returns the running or starting services of lower priority without another action in progress. These are planned
/// later in the same plan.
fn displaceable(planner: &Planner<'_>, service: &Service<'_>) -> BTreeSet<ResourceName> {
    let world = planner.situation.world;
    let rank = |name: &ResourceName, own: i32| planner.order.priority(name, own);
    let own = rank(service.name, service.resource.value.spec.priority);
    world
        .resources
        .iter()
        .filter(|(name, resource)| {
            let spec = &resource.value.spec;
            rank(name, spec.priority) < own
                && spec.state == RequestedState::Started
                && resource.value.metadata.deletion_timestamp.is_none()
                && !planner.situation.busy.contains(&Subject::Service((*name).clone()))
        })
        .filter(|(name, _)| {
            let state = world.resource_statuses.get(*name).map(|status| status.value.state);
            let action = world.assignments.get(*name).map(|assignment| &assignment.value.action);
            matches!(state, Some(ServiceState::Starting | ServiceState::Started))
                && matches!(action, Some(Action::Start | Action::Restart))
        })
        .map(|(name, _)| name.clone())
        .collect()
}

/// Stops the service if it is preempted.
pub(super) fn leave(planner: &Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let Some(Displacement { by, priority }) = planner.displaced.get(service.name) else { return };
    if !matches!(draft.status.state, ServiceState::Starting | ServiceState::Started) {
        return;
    }
    let node = draft.status.node.clone().unwrap_or_default();
    draft.status.preempted_by = Some(by.clone());
    draft.status.maintenance_node = None;
    draft.go(
        ServiceState::RequestStop,
        Reason::Preempted,
        format!("Stopping on {node}: preempted by {by} (priority {priority})"),
    );
}

/// Starts a stopped service again; a preempted one is scheduled on another node.
pub(super) fn start_again(draft: &mut Draft) {
    match &draft.status.preempted_by {
        Some(by) => {
            let message = format!("Preempted by {by}, scheduling on another node");
            draft.go(ServiceState::Recovery, Reason::Preempted, message);
        }
        None => {
            draft.go(ServiceState::RequestStart, Reason::Scheduled, "Stopped, starting again".to_owned());
        }
    }
}

/// Explains in the message of a preempted service why it lost its node.
pub(super) fn explain(draft: &mut Draft, placement: &Placement) {
    if let Some(by) = draft.status.preempted_by.clone()
        && draft.reserves.is_none()
    {
        draft.waiting.clear();
        draft.wait(Reason::Preempted, format!("Preempted by {by}. {}", why_nowhere(placement)));
    }
}
