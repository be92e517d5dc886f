//! One identity, one resource (FENCING, R7.2, R7.13, R7.14).

use super::{AssignmentChange, EpochStatus, Planner, Service, ServiceUpdate, report_guard};
use crate::core::plan::Subject;
use crate::core::plan_input::PlanInput;
use crate::core::world::{ClusterView, Versioned};
use ha_api_types::driver::Identity;
use ha_api_types::id::{NodeName, ResourceName, Revision};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Phase, Tombstone};
use ha_api_types::resource::{ServiceCopy, ServiceState};

/// Returns why the service cannot start: another resource with the same identity has precedence. `None` if there is
/// no such resource.
pub(super) fn conflict(planner: &Planner<'_>, service: &Service<'_>) -> Option<String> {
    let input = planner.input;
    let cluster_view = input.cluster_view;
    let identity = cluster_view.identity(service.name)?;
    let other_resources =
        cluster_view.resources_with_identity(identity).filter(|name| *name != service.name).filter(|name| {
            let exclusive = cluster_view.resources.get(*name).is_some_and(|other| other.value.spec.exclusive);
            exclusive || service.is_exclusive()
        });
    other_resources
        .filter(|name| {
            let subject = Subject::Service((*name).clone());
            // The write in progress may start the other resource.
            input.busy.contains(&subject)
                || planner.plan.actions.iter().any(|action| action.subject == subject)
                || precedence(cluster_view, name) < precedence(cluster_view, service.name)
        })
        .map(|name| format!("Resource {name} already manages {identity}"))
        .next()
}

/// Returns the precedence of a resource: resources whose service may run come first, then assigned resources, then
/// older resources.
fn precedence<'a>(cluster_view: &ClusterView, name: &'a ResourceName) -> (u8, Revision, &'a ResourceName) {
    let create_revision =
        cluster_view.resources.get(name).map_or(Revision(i64::MAX), |resource| resource.create_revision);
    let copies =
        cluster_view.resource_statuses.get(name).is_some_and(|status| !status.value.copies.is_empty());
    let usage_rank = match cluster_view.assignments.get(name).map(|assignment| &assignment.value.action) {
        Some(Action::Start | Action::Restart | Action::Migrate { .. } | Action::DoNothing) => 0,
        _ if copies => 0,
        Some(Action::Stop { .. }) => 1,
        None => 2,
    };
    (usage_rank, create_revision, name)
}

/// Returns the tombstones of other names that hold the service's identity.
pub(super) fn tombstones_with_identity<'a>(
    cluster_view: &'a ClusterView,
    name: &ResourceName,
) -> Vec<(&'a ResourceName, &'a Versioned<Tombstone>)> {
    let Some(identity) = cluster_view.identity(name) else { return Vec::new() };
    cluster_view
        .tombstones
        .iter()
        .filter(|(owner, tombstone)| {
            *owner != name && copies_with_identity(&tombstone.value, identity).next().is_some()
        })
        .collect()
}

/// Returns the copies of a tombstone that have this identity.
pub(super) fn copies_with_identity<'a>(
    tombstone: &'a Tombstone,
    identity: &'a Identity,
) -> impl Iterator<Item = &'a ServiceCopy> {
    tombstone.copies.iter().filter(|copy| copy.definition.identity().as_ref() == Some(identity))
}

/// Returns the revision after which a node must have answered, because a deleted resource may have left the service
/// running there. The deleted resource had the same name, or another name and the same identity.
pub(super) fn answer_required_after(
    cluster_view: &ClusterView,
    service: &Service<'_>,
    node: &NodeName,
) -> Option<Revision> {
    let own_tombstone = service.tombstone.filter(|tombstone| tombstone.value.nodes.contains(node));
    let identity = cluster_view.identity(service.name);
    let other_tombstones =
        tombstones_with_identity(cluster_view, service.name).into_iter().filter(|(_, tombstone)| {
            identity.is_some_and(|identity| {
                copies_with_identity(&tombstone.value, identity).any(|copy| copy.node == *node)
            })
        });
    other_tombstones
        .map(|(_, tombstone)| tombstone)
        .chain(own_tombstone)
        .map(|tombstone| tombstone.mod_revision)
        .max()
}

/// Ends the tombstones of the service's name and identity, once each of their nodes has answered for that identity.
/// Copies of another identity stay.
pub(super) fn end_tombstones(input: &PlanInput<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let cluster_view = input.cluster_view;
    let identity = cluster_view.identity(service.name);
    let own_tombstone = service.tombstone.map(|tombstone| (service.name, tombstone));
    let other_tombstones = tombstones_with_identity(cluster_view, service.name);
    for (name, tombstone) in other_tombstones.into_iter().chain(own_tombstone) {
        let mut remaining = tombstone.value.clone();
        remaining.copies.retain(|copy| copy.definition.identity().as_ref() != identity);
        remaining.nodes = remaining.copies.iter().map(|copy| copy.node.clone()).collect();
        let remaining = Some(remaining).filter(|remaining| !remaining.copies.is_empty());
        if remaining.as_ref() != Some(&tombstone.value) {
            update.tombstones.insert(cluster_view.keys.tombstone(name), (tombstone.mod_revision, remaining));
        }
    }
}

/// Detects a changed identity. Earlier answers do not count for it, so every node is probed. A running copy keeps its
/// assignment until it is stopped.
pub(super) fn probe_changed_identity(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
) {
    let is_stable = match update.status.state {
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
    let current = input.cluster_view.identity(service.name).cloned();
    if !is_stable || current.is_none() || update.status.asked_identity == current {
        return;
    }
    let assigned = service
        .assignment
        .map(|assignment| &assignment.value)
        .filter(|assignment| assignment.definition.uid == *service.uid());
    let requested_identity = update
        .status
        .asked_identity
        .clone()
        .or_else(|| assigned.and_then(|assignment| assignment.definition.identity()));
    let changed = requested_identity.is_some() && requested_identity != current;
    let is_queued = update.status.state == ServiceState::Queued;
    if changed && !is_queued {
        let active_assignment = service
            .assignment_with_epoch(input)
            .filter(|(_, epoch_status)| *epoch_status == EpochStatus::Active);
        if let Some((assignment, _)) = active_assignment {
            if service.phase(input).is_none_or(Phase::may_run) {
                return;
            }
            let (key, guard) = report_guard(input, &assignment.node, service.name);
            update.guards.insert(key, guard);
        }
        if service.assignment.is_some() {
            update.assignment_change = AssignmentChange::Delete;
        }
        update.status.epoch = None;
        update.status.action_uid = None;
        let message = "Identity of the service changed: asking every node whether the new service runs there";
        update.transition_to(ServiceState::Queued, Reason::NotProbed, message.to_owned());
    }
    if changed || is_queued {
        update.status.asked_generation = service.resource.value.metadata.generation;
    }
    update.status.asked_identity = current;
}
