//! Deletion of resources: management ends, the service is left unchanged, and a tombstone names the nodes where it may
//! still run.

use super::ignore::is_handing_over;
use super::{Draft, Planner, Service, Standing, replacement, revision_of};
use crate::core::plan::{Note, Subject, event, stored};
use crate::core::situation::Situation;
use ha_api_types::event::EventType;
use ha_api_types::id::{BootId, Epoch, NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::Tombstone;
use ha_api_types::resource::{ServiceCopy, ServiceDefinition, ServiceState};
use ha_store::{Guard, Transaction};
use std::collections::BTreeSet;

/// Ends the management of a deleted resource. The assignment, the status and, once no other finalizer is left, the
/// spec are deleted in one transaction.
pub(super) fn plan(planner: &mut Planner<'_>, service: &Service<'_>) {
    let situation = planner.situation;
    let keys = &situation.world.keys;
    let name = service.name;
    if is_handing_over(&situation, service) {
        wait(planner, service, "Waiting for the cutover of the live migration to end".to_owned());
        return;
    }
    let mut draft = Draft::of(service);
    if replacement::look(planner, service, &mut draft) {
        super::finish(planner, service, draft);
        return;
    }
    let others: Vec<&str> = service
        .resource
        .value
        .metadata
        .finalizers
        .iter()
        .map(String::as_str)
        .filter(|finalizer| *finalizer != FINALIZER)
        .collect();
    if !others.is_empty() {
        wait(planner, service, format!("Waiting for finalizers to be removed: {}", others.join(", ")));
        return;
    }
    let mut transaction = Transaction::new()
        .delete(keys.spec(Kind::Resource, name), Guard::Unchanged(service.resource.modified));
    if service.assignment.is_some() {
        transaction = transaction.delete(keys.assignment(name), revision_of(service.assignment));
    } else {
        // An assignment of an unknown write must not appear after the deletion.
        transaction = transaction.guard(keys.assignment(name), Guard::Absent);
    }
    if service.status.is_some() {
        transaction = transaction.delete(keys.status(Kind::Resource, name), revision_of(service.status));
    }
    let mut nodes = may_run_on(&situation, service);
    // The tombstone takes over the copies, under guards that prove the end of the other copies (R6.5, R6.6).
    let left = super::copies::remaining(&situation, service, &mut draft);
    nodes.extend(left.iter().map(|copy| copy.node.clone()));
    for (key, guard) in std::mem::take(&mut draft.guards) {
        transaction = transaction.guard(key, guard);
    }
    if !nodes.is_empty() {
        let copies = copies(&situation, service, &nodes, left);
        let tombstone = Tombstone { uid: service.uid().to_owned(), nodes, copies };
        let guard = revision_of(service.tombstone);
        transaction = transaction.put(keys.tombstone(name), guard, stored(&tombstone));
    }
    let message = Reason::Deleted.sentence();
    let uid = service.uid();
    let told = event(&situation, Kind::Resource, name, uid, EventType::Normal, Reason::Deleted, message);
    planner.plan.act(Subject::Service(name.to_owned()), transaction, vec![told], Note::Uses(BTreeSet::new()));
}

/// Shows the service as Deleting, and begins no further action.
fn wait(planner: &mut Planner<'_>, service: &Service<'_>, message: String) {
    let mut draft = Draft::of(service);
    if draft.status.state != ServiceState::Deleting {
        draft.go(ServiceState::Deleting, Reason::Waiting, message.clone());
    }
    draft.wait(Reason::Waiting, message);
    super::finish(planner, service, draft);
}

/// Finalizer that the API sets on each resource, so that its deletion waits for the leader.
const FINALIZER: &str = "hactl.io/managed";

/// Returns every node where the service may still run once it is unmanaged.
fn may_run_on(situation: &Situation<'_>, service: &Service<'_>) -> BTreeSet<NodeName> {
    let world = situation.world;
    let mut nodes: BTreeSet<NodeName> =
        service.may_run_elsewhere(situation, None).into_iter().cloned().collect();
    if let Some(tombstone) = service.tombstone {
        nodes.extend(tombstone.value.nodes.iter().cloned());
    }
    if let Some((assignment, standing)) = service.assigned(situation) {
        let stopped = service.phase(situation).is_some_and(|phase| !phase.may_run());
        match standing {
            Standing::Released => {}
            Standing::InForce | Standing::Closing if stopped => {}
            Standing::InForce | Standing::Closing => {
                nodes.insert(assignment.node.clone());
            }
        }
    }
    let status = service.status.map(|status| &status.value);
    if let Some(status) = status
        && status.stop_confirmed == Some(false)
        && let (Some(node), Some(epoch)) = (&status.node, status.epoch)
        && Service::standing(situation, node, epoch) != Standing::Released
    {
        nodes.insert(node.clone());
    }
    nodes.extend(service.not_stopped(situation).map(|(node, _, _)| node.to_owned()));
    nodes.extend(super::migrate::unproven_arrival(situation, service).map(|(node, _)| node.to_owned()));
    let unguarded = status.is_some_and(|status| status.state == ServiceState::Ignored)
        || super::probe::may_run_anywhere(world, status);
    if unguarded {
        // The service was unmanaged: it may run on every node that is not proven empty.
        nodes.extend(
            world
                .fences
                .iter()
                .filter(|(_, fence)| !super::probe::proves_the_machine_empty(&fence.value))
                .map(|(node, _)| node.clone()),
        );
    }
    nodes
}

/// Returns the copies that the tombstone takes over: those of an earlier tombstone of the name, and one for each
/// further node. The definition comes from the assignment or, without one, from the resource (FENCING, R7.15).
fn copies(
    situation: &Situation<'_>,
    service: &Service<'_>,
    nodes: &BTreeSet<NodeName>,
    mut left: Vec<ServiceCopy>,
) -> Vec<ServiceCopy> {
    let mut copies: Vec<ServiceCopy> =
        service.tombstone.map(|tombstone| tombstone.value.copies.clone()).unwrap_or_default();
    super::copies::let_go(&mut left);
    copies.extend(left);
    let definition = service
        .assignment
        .map(|assignment| assignment.value.definition.clone())
        .filter(|definition| definition.uid == service.uid())
        .unwrap_or_else(|| ServiceDefinition::of(&service.resource.value));
    for node in nodes {
        let is_there = |copy: &ServiceCopy| copy.node == *node && copy.definition.is_same_thing(&definition);
        if copies.iter().any(is_there) {
            continue;
        }
        let fence = situation.world.fences.get(node).map(|fence| fence.value.clone()).unwrap_or_default();
        copies.push(copy_at(node, fence.epoch, &fence.boot_id, &definition));
    }
    copies
}

fn copy_at(node: &NodeName, epoch: Epoch, boot_id: &BootId, definition: &ServiceDefinition) -> ServiceCopy {
    ServiceCopy {
        node: node.to_owned(),
        epoch,
        boot_id: boot_id.to_owned(),
        definition: definition.clone(),
        let_go: true,
    }
}

/// Removes the remaining records of resources whose spec is gone.
pub(super) fn plan_orphans(planner: &mut Planner<'_>) {
    let situation = planner.situation;
    let world = situation.world;
    let names: BTreeSet<&ResourceName> =
        world.assignments.keys().chain(world.resource_statuses.keys()).collect();
    for name in names {
        let spec_key = world.keys.spec(Kind::Resource, name);
        let subject = Subject::Service(name.clone());
        if world.resources.contains_key(name)
            || world.unreadable.contains_key(&spec_key)
            || situation.busy.contains(&subject)
        {
            continue;
        }
        let mut transaction = Transaction::new().guard(spec_key, Guard::Absent);
        let mut left: Vec<ServiceCopy> =
            world.resource_statuses.get(name).map(|status| status.value.copies.clone()).unwrap_or_default();
        super::copies::let_go(&mut left);
        if let Some(status) = world.resource_statuses.get(name) {
            transaction = transaction
                .delete(world.keys.status(Kind::Resource, name), Guard::Unchanged(status.modified));
        }
        if let Some(assignment) = world.assignments.get(name) {
            let value = &assignment.value;
            transaction =
                transaction.delete(world.keys.assignment(name), Guard::Unchanged(assignment.modified));
            if Service::standing(&situation, &value.node, value.epoch) != Standing::Released {
                let known = world.tombstones.get(name);
                let mut nodes = known.map(|known| known.value.nodes.clone()).unwrap_or_default();
                nodes.insert(value.node.clone());
                let mut copies = known.map(|known| known.value.copies.clone()).unwrap_or_default();
                nodes.extend(left.iter().map(|copy| copy.node.clone()));
                copies.extend(left);
                copies.push(copy_at(&value.node, value.epoch, &value.boot_id, &value.definition));
                let tombstone = Tombstone { uid: value.definition.uid.clone(), nodes, copies };
                let key = world.keys.tombstone(name);
                transaction = transaction.put(key, revision_of(known), stored(&tombstone));
            }
        }
        planner.plan.act(subject, transaction, Vec::new(), Note::Uses(BTreeSet::new()));
    }
}
