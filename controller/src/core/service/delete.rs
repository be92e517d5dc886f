//! Deletion of resources: management ends, the service is left unchanged, and a tombstone names the nodes where the
//! service may still run.

use super::assign::assigned_nodes;
use super::ignore::{is_handing_over, managing_nodes, unconfirmed_message};
use super::probe::is_unreachable;
use super::{
    AssignmentChange, EpochStatus, Planner, Service, ServiceUpdate, record_guard, replacement, report_guard,
};
use crate::core::plan::{OnApplied, Subject, event, serialized};
use crate::core::plan_input::PlanInput;
use ha_api_types::event::EventType;
use ha_api_types::id::{BootId, Epoch, NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::Tombstone;
use ha_api_types::resource::{ServiceCopy, ServiceDefinition, ServiceState};
use ha_store::{Guard, Transaction};
use std::collections::BTreeSet;

/// Ends the management of a deleted resource. The assignment, the status and, once no other finalizer remains, the spec
/// are deleted in one transaction.
pub(super) fn plan(planner: &mut Planner<'_>, service: &Service<'_>) {
    let input = planner.input;
    let keys = &input.cluster_view.keys;
    let name = service.name;
    if is_handing_over(&input, service) {
        wait_in_deleting(planner, service, "Waiting for the cutover of the live migration to end".to_owned());
        return;
    }
    let mut update = ServiceUpdate::of(service);
    if replacement::advance(planner, service, &mut update) {
        super::write_draft(planner, service, update);
        return;
    }
    let other_nodes: Vec<&str> = service
        .resource
        .value
        .metadata
        .finalizers
        .iter()
        .map(String::as_str)
        .filter(|finalizer| *finalizer != FINALIZER)
        .collect();
    if !other_nodes.is_empty() {
        wait_in_deleting(
            planner,
            service,
            format!("Waiting for finalizers to be removed: {}", other_nodes.join(", ")),
        );
        return;
    }
    // An unreachable agent starts nothing more, and the tombstone covers the copy there.
    let managing_node = managing_nodes(&input, service, None).find(|node| !is_unreachable(planner, node));
    if let Some(node) = managing_node {
        if let Some(health) = planner.nodes.get(node) {
            update.wake_after(health.late_at, 0, "a node that manages a deleted service is unreachable");
        }
        end_management(planner, service, update, unconfirmed_message(node));
        return;
    }
    let mut transaction = Transaction::new()
        .delete(keys.spec(Kind::Resource, name), Guard::Unchanged(service.resource.mod_revision));
    if service.assignment.is_some() {
        transaction = transaction.delete(keys.assignment(name), record_guard(service.assignment));
        // A permit that is committed before that must be seen first.
        for (node, _) in service.assignment.iter().flat_map(|assignment| assigned_nodes(&assignment.value)) {
            update.guards.extend([report_guard(&input, node, name)]);
        }
    } else {
        // A write of an assignment with an unknown outcome must not be applied after the deletion.
        transaction = transaction.guard(keys.assignment(name), Guard::Absent);
    }
    if service.status.is_some() {
        transaction = transaction.delete(keys.status(Kind::Resource, name), record_guard(service.status));
    }
    let mut nodes = may_run_on(&input, service);
    // The tombstone takes over the copies, under guards that prove the end of the other copies (R6.5, R6.6).
    let remaining = super::copies::remaining_copies(&input, service, &mut update);
    nodes.extend(remaining.iter().map(|copy| copy.node.clone()));
    for (key, guard) in std::mem::take(&mut update.guards) {
        transaction = transaction.guard(key, guard);
    }
    if !nodes.is_empty() {
        let copies = tombstone_copies(&input, service, &nodes, remaining);
        let tombstone = Tombstone { uid: service.uid().clone(), nodes, copies };
        let guard = record_guard(service.tombstone);
        transaction = transaction.put(keys.tombstone(name), guard, serialized(&tombstone));
    }
    let message = Reason::Deleted.sentence();
    let uid = service.uid();
    let event_of_deletion =
        event(&input, Kind::Resource, name, uid, EventType::Normal, Reason::Deleted, message);
    planner.plan.add_action(
        Subject::Service(name.to_owned()),
        transaction,
        vec![event_of_deletion],
        OnApplied::Uses(BTreeSet::new()),
    );
}

/// Deletes the assignment. The resource exists until no reachable agent acts on the service, because an operator may
/// start the service on any node after the resource was removed.
fn end_management(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    mut update: ServiceUpdate,
    message: String,
) {
    if service.assignment.is_some() {
        update.assignment_change = AssignmentChange::Delete;
    }
    super::copies::mark_unguarded(&mut update.status.copies);
    show_deleting(planner, service, update, message);
}

/// Shows the service as Deleting, and begins no further action.
fn wait_in_deleting(planner: &mut Planner<'_>, service: &Service<'_>, message: String) {
    show_deleting(planner, service, ServiceUpdate::of(service), message);
}

fn show_deleting(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    mut update: ServiceUpdate,
    message: String,
) {
    if update.status.state != ServiceState::Deleting {
        update.transition_to(ServiceState::Deleting, Reason::Waiting, message.clone());
    }
    update.add_wait(Reason::Waiting, message);
    super::write_draft(planner, service, update);
}

/// Finalizer that the API sets on each resource, so that its deletion waits for the leader.
const FINALIZER: &str = "hactl.io/managed";

/// Returns every node where the service may still run once it is unmanaged.
fn may_run_on(input: &PlanInput<'_>, service: &Service<'_>) -> BTreeSet<NodeName> {
    let cluster_view = input.cluster_view;
    let mut nodes: BTreeSet<NodeName> =
        service.other_possible_nodes(input, None).into_iter().cloned().collect();
    if let Some(tombstone) = service.tombstone {
        nodes.extend(tombstone.value.nodes.iter().cloned());
    }
    if let Some((assignment, epoch_status)) = service.assignment_with_epoch(input) {
        let stopped = service.phase(input).is_some_and(|phase| !phase.may_run());
        match epoch_status {
            EpochStatus::Released => {}
            EpochStatus::Active | EpochStatus::Closing if stopped => {}
            EpochStatus::Active | EpochStatus::Closing => {
                nodes.insert(assignment.node.clone());
            }
        }
    }
    let status = service.status.map(|status| &status.value);
    if let Some(status) = status
        && status.stop_confirmed == Some(false)
        && let (Some(node), Some(epoch)) = (&status.node, status.epoch)
        && Service::epoch_status(input, node, epoch) != EpochStatus::Released
    {
        nodes.insert(node.clone());
    }
    nodes.extend(service.not_stopped(input).map(|(node, _, _)| node.to_owned()));
    nodes.extend(super::migrate::unproven_arrival(input, service).map(|(node, _)| node.to_owned()));
    let unguarded = status.is_some_and(|status| status.state == ServiceState::Ignored)
        || super::probe::may_run_anywhere(cluster_view, status);
    if unguarded {
        // The service was unmanaged: it may run on every node that is not proven empty.
        nodes.extend(
            cluster_view
                .fences
                .iter()
                .filter(|(_, fence)| !super::probe::proves_machine_empty(&fence.value))
                .map(|(node, _)| node.clone()),
        );
    }
    nodes
}

/// Returns the copies that the tombstone takes over: the copies in an earlier tombstone of the name, and one copy for
/// each further node. The definition comes from the assignment or, without one, from the resource (FENCING, R7.15).
fn tombstone_copies(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    nodes: &BTreeSet<NodeName>,
    mut remaining: Vec<ServiceCopy>,
) -> Vec<ServiceCopy> {
    let mut copies: Vec<ServiceCopy> =
        service.tombstone.map(|tombstone| tombstone.value.copies.clone()).unwrap_or_default();
    super::copies::mark_unguarded(&mut remaining);
    copies.extend(remaining);
    let definition = service
        .assignment
        .map(|assignment| assignment.value.definition.clone())
        .filter(|definition| definition.uid == *service.uid())
        .unwrap_or_else(|| ServiceDefinition::of(&service.resource.value));
    for node in nodes {
        let is_there =
            |copy: &ServiceCopy| copy.node == *node && copy.definition.has_same_identity(&definition);
        if copies.iter().any(is_there) {
            continue;
        }
        let fence = input.cluster_view.fences.get(node).map(|fence| fence.value.clone()).unwrap_or_default();
        copies.push(unguarded_copy(node, fence.epoch, &fence.boot_id, &definition));
    }
    copies
}

fn unguarded_copy(
    node: &NodeName,
    epoch: Epoch,
    boot_id: &BootId,
    definition: &ServiceDefinition,
) -> ServiceCopy {
    ServiceCopy {
        node: node.to_owned(),
        epoch,
        boot_id: boot_id.to_owned(),
        definition: definition.clone(),
        is_unguarded: true,
    }
}

/// Removes the remaining records of resources whose spec no longer exists.
pub(super) fn plan_orphans(planner: &mut Planner<'_>) {
    let input = planner.input;
    let cluster_view = input.cluster_view;
    let names: BTreeSet<&ResourceName> =
        cluster_view.assignments.keys().chain(cluster_view.resource_statuses.keys()).collect();
    for name in names {
        let spec_key = cluster_view.keys.spec(Kind::Resource, name);
        let subject = Subject::Service(name.clone());
        if cluster_view.resources.contains_key(name)
            || cluster_view.unreadable.contains_key(&spec_key)
            || input.busy.contains(&subject)
        {
            continue;
        }
        let mut transaction = Transaction::new().guard(spec_key, Guard::Absent);
        let mut remaining: Vec<ServiceCopy> = cluster_view
            .resource_statuses
            .get(name)
            .map(|status| status.value.copies.clone())
            .unwrap_or_default();
        super::copies::mark_unguarded(&mut remaining);
        if let Some(status) = cluster_view.resource_statuses.get(name) {
            transaction = transaction.delete(
                cluster_view.keys.status(Kind::Resource, name),
                Guard::Unchanged(status.mod_revision),
            );
        }
        if let Some(assignment) = cluster_view.assignments.get(name) {
            let value = &assignment.value;
            transaction = transaction
                .delete(cluster_view.keys.assignment(name), Guard::Unchanged(assignment.mod_revision));
            if Service::epoch_status(&input, &value.node, value.epoch) != EpochStatus::Released {
                let stored_tombstone = cluster_view.tombstones.get(name);
                let mut nodes = stored_tombstone
                    .map(|stored_tombstone| stored_tombstone.value.nodes.clone())
                    .unwrap_or_default();
                nodes.insert(value.node.clone());
                let mut copies = stored_tombstone
                    .map(|stored_tombstone| stored_tombstone.value.copies.clone())
                    .unwrap_or_default();
                nodes.extend(remaining.iter().map(|copy| copy.node.clone()));
                copies.extend(remaining);
                copies.push(unguarded_copy(&value.node, value.epoch, &value.boot_id, &value.definition));
                let tombstone = Tombstone { uid: value.definition.uid.clone(), nodes, copies };
                let key = cluster_view.keys.tombstone(name);
                transaction = transaction.put(key, record_guard(stored_tombstone), serialized(&tombstone));
            }
        }
        planner.plan.add_action(subject, transaction, Vec::new(), OnApplied::Uses(BTreeSet::new()));
    }
}
