//! One identity, one resource (FENCING, R7.2, R7.13, R7.14).

use super::{Assign, Draft, Planner, Service, Standing, report_guard};
use crate::core::plan::Subject;
use crate::core::situation::Situation;
use crate::core::world::{Versioned, World};
use ha_api_types::driver::Identity;
use ha_api_types::id::{NodeName, ResourceName, Revision};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Phase, Tombstone};
use ha_api_types::resource::{ServiceCopy, ServiceState};

/// Returns why the service cannot start: another resource with the same identity has precedence. `None` if there is
/// no such resource.
pub(super) fn taken(planner: &Planner<'_>, service: &Service<'_>) -> Option<String> {
    let situation = planner.situation;
    let world = situation.world;
    let identity = world.identity(service.name)?;
    let others = world.named_as(identity).filter(|name| *name != service.name).filter(|name| {
        let exclusive = world.resources.get(*name).is_some_and(|other| other.value.spec.exclusive);
        exclusive || service.exclusive()
    });
    others
        .filter(|name| {
            let subject = Subject::Service((*name).clone());
            // The write in progress about the other resource may be its start.
            situation.busy.contains(&subject)
                || planner.plan.actions.iter().any(|action| action.subject == subject)
                || rank(world, name) < rank(world, service.name)
        })
        .map(|name| format!("Resource {name} already manages {identity}"))
        .next()
}

/// Returns the precedence of a resource: services that may run, then assigned ones, then by creation.
fn rank<'a>(world: &World, name: &'a ResourceName) -> (u8, Revision, &'a ResourceName) {
    let created = world.resources.get(name).map_or(Revision(i64::MAX), |resource| resource.created);
    let copies = world.resource_statuses.get(name).is_some_and(|status| !status.value.copies.is_empty());
    let place = match world.assignments.get(name).map(|assignment| &assignment.value.action) {
        Some(Action::Start | Action::Restart | Action::Migrate { .. } | Action::Leave) => 0,
        _ if copies => 0,
        Some(Action::Stop { .. }) => 1,
        None => 2,
    };
    (place, created, name)
}

/// Returns the tombstones of other names that hold the service's identity.
pub(super) fn held_by<'a>(
    world: &'a World,
    name: &ResourceName,
) -> Vec<(&'a ResourceName, &'a Versioned<Tombstone>)> {
    let Some(identity) = world.identity(name) else { return Vec::new() };
    world
        .tombstones
        .iter()
        .filter(|(of, tombstone)| *of != name && of_identity(&tombstone.value, identity).next().is_some())
        .collect()
}

/// Returns the copies of a tombstone that have this identity.
pub(super) fn of_identity<'a>(
    tombstone: &'a Tombstone,
    identity: &'a Identity,
) -> impl Iterator<Item = &'a ServiceCopy> {
    tombstone.copies.iter().filter(|copy| copy.definition.identity().as_ref() == Some(identity))
}

/// Returns the revision after which a node must have answered, if a deleted resource may have left the service
/// running there. That resource had the same name, or another name with the same identity.
pub(super) fn left_running(world: &World, service: &Service<'_>, node: &NodeName) -> Option<Revision> {
    let own = service.tombstone.filter(|tombstone| tombstone.value.nodes.contains(node));
    let identity = world.identity(service.name);
    let others = held_by(world, service.name).into_iter().filter(|(_, tombstone)| {
        identity
            .is_some_and(|identity| of_identity(&tombstone.value, identity).any(|copy| copy.node == *node))
    });
    others.map(|(_, tombstone)| tombstone).chain(own).map(|tombstone| tombstone.modified).max()
}

/// Ends the tombstones of the service's name and identity, once each of their nodes has answered for that identity.
/// Copies of another identity stay.
pub(super) fn end_tombstones(situation: &Situation<'_>, service: &Service<'_>, draft: &mut Draft) {
    let world = situation.world;
    let identity = world.identity(service.name);
    let own = service.tombstone.map(|tombstone| (service.name, tombstone));
    let others = held_by(world, service.name);
    for (name, tombstone) in others.into_iter().chain(own) {
        let mut left = tombstone.value.clone();
        left.copies.retain(|copy| copy.definition.identity().as_ref() != identity);
        left.nodes = left.copies.iter().map(|copy| copy.node.clone()).collect();
        let left = Some(left).filter(|left| !left.copies.is_empty());
        if left.as_ref() != Some(&tombstone.value) {
            draft.tombstones.insert(world.keys.tombstone(name), (tombstone.modified, left));
        }
    }
}

/// Detects a changed identity. Earlier answers do not count for it, so every node is probed. A running copy keeps its
/// assignment until it is stopped.
pub(super) fn follow(situation: &Situation<'_>, service: &Service<'_>, draft: &mut Draft) {
    let rests = match draft.status.state {
        ServiceState::Queued
        | ServiceState::RequestStart
        | ServiceState::Stopped
        | ServiceState::Disabled => true,
        ServiceState::Starting
        | ServiceState::Started
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Fence
        | ServiceState::Recovery
        | ServiceState::Freeze
        | ServiceState::Error
        | ServiceState::Ignored
        | ServiceState::Deleting => false,
    };
    let present = situation.world.identity(service.name).cloned();
    if !rests || present.is_none() || draft.status.asked_identity == present {
        return;
    }
    let assigned = service
        .assignment
        .map(|assignment| &assignment.value)
        .filter(|assignment| assignment.definition.uid == service.uid());
    let known = draft
        .status
        .asked_identity
        .clone()
        .or_else(|| assigned.and_then(|assignment| assignment.definition.identity()));
    let changed = known.is_some() && known != present;
    let is_queued = draft.status.state == ServiceState::Queued;
    if changed && !is_queued {
        let in_force = service.assigned(situation).filter(|(_, standing)| *standing == Standing::InForce);
        if let Some((assignment, _)) = in_force {
            if service.phase(situation).is_none_or(Phase::may_run) {
                return;
            }
            let (key, guard) = report_guard(situation, &assignment.node, service.name);
            draft.guards.insert(key, guard);
        }
        if service.assignment.is_some() {
            draft.assign = Assign::Delete;
        }
        draft.status.epoch = None;
        draft.status.action_uid = None;
        let message = "Identity of the service changed: asking every node whether the new service runs there";
        draft.go(ServiceState::Queued, Reason::NotProbed, message.to_owned());
    }
    if changed || is_queued {
        draft.status.asked_generation = service.resource.value.metadata.generation;
    }
    draft.status.asked_identity = present;
}
