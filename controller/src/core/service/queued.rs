//! Queued services: the leader has not determined yet where they run.

use super::assign::{start_on, stop_on};
use super::probe::{Answer, answers};
use super::start::mark_stopped_if_unrequested;
use super::{
    AssignmentChange, EpochStatus, Planner, Service, ServiceUpdate, copies, error, identity, recover,
    report_guard,
};
use crate::core::plan_input::PlanInput;
use crate::core::restored;
use crate::core::world::guard_of;
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, FenceState};
use ha_api_types::resource::{RequestedState, ResourceStatus, ServiceState};
use ha_store::Guard;

/// Returns `true` if a service that seems to be at rest may have been started by hand while the cluster was disarmed.
/// The service was in Error then, and has left Error.
pub(super) fn needs_new_probe(update: &ServiceUpdate) -> bool {
    update.status.probe_arming.is_some()
        && match update.status.state {
            ServiceState::RequestStart
            | ServiceState::Stopped
            | ServiceState::Disabled
            | ServiceState::Recovery => true,
            ServiceState::Queued
            | ServiceState::Starting
            | ServiceState::Started
            | ServiceState::RequestStop
            | ServiceState::Stopping
            | ServiceState::Migrate
            | ServiceState::Relocate
            | ServiceState::Fence
            | ServiceState::Freeze
            | ServiceState::Error
            | ServiceState::Ignored
            | ServiceState::Deleting => false,
        }
}

/// Probes the service on every node after a restore, because its records come from the backup (FENCING, section 10).
pub(super) fn probe_after_restore(update: &mut ServiceUpdate) {
    update.clear_all_failures();
    let status = &mut update.status;
    status.target = None;
    status.epoch = None;
    status.action_uid = None;
    status.maintenance_node = None;
    status.preempted_by = None;
    status.replacement = None;
    status.move_failures = 0;
    copies::mark_unguarded(&mut status.copies);
    // No reports from before the restore exist, so the next answers are new.
    status.probe_arming = None;
    let message =
        "etcd was restored from a backup: asking every node whether the service runs there".to_owned();
    update.transition_to(ServiceState::Queued, Reason::EtcdRestored, message);
}

/// Probes the service on every node, because it may have been moved by hand while the cluster was disarmed (FENCING,
/// section 7).
pub(super) fn probe_all_nodes(input: &PlanInput<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    if let Some((assignment, EpochStatus::Active)) = service.assignment_with_epoch(input) {
        let (key, guard) = report_guard(input, &assignment.node, service.name);
        update.guards.insert(key, guard);
    }
    if service.assignment.is_some() {
        update.assignment_change = AssignmentChange::Delete;
    }
    copies::mark_unguarded(&mut update.status.copies);
    update.status.epoch = None;
    update.status.action_uid = None;
    let message = "Service may have been moved manually: asking every node whether it runs there".to_owned();
    update.transition_to(ServiceState::Queued, Reason::NotProbed, message);
}

/// Replaces an unreadable status or assignment (FENCING, R1.23). If the assignment is readable, it determines the
/// state. Otherwise the assignment is deleted, and every node is probed.
pub(super) fn replace_unreadable_records(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
) {
    let status = ResourceStatus {
        uid: service.uid().clone(),
        // A stop that was not confirmed stays unconfirmed.
        stop_confirmed: update.status.stop_confirmed.filter(|confirmed| !confirmed),
        ..ResourceStatus::default()
    };
    update.status = status;
    if input.cluster_view.is_assignment_unreadable(service.name) {
        update.assignment_change = AssignmentChange::Delete;
        update.status.probe_generation = Some(service.resource.value.metadata.generation);
    }
    let message =
        "Stored records cannot be read by this version: asking every node whether the service runs \
         there"
            .to_owned();
    update.transition_to(ServiceState::Queued, Reason::Unreadable, message);
}

/// Ends Queued once every node where the service might already run has answered or is proven empty. Without a
/// running copy the service can start, a single running copy is adopted where it is, and two running copies are an
/// error.
pub(super) fn plan_queued(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let input = planner.input;
    if let Some(assignment) = service.assignment
        && assignment.value.definition.uid == *service.uid()
        && update.status.probe_generation.is_none()
        && update.status.probe_arming.is_none()
    {
        // The status was lost, but not the assignment.
        recover::resume_from_assignment(service, update, &assignment.value, service.phase(&input));
        return;
    }
    if input.cluster_view.settings().disarmed.is_some() {
        update.add_wait(Reason::Disarmed, "Cluster is disarmed");
        return;
    }
    if service.resource.value.spec.driver.kind().is_none() {
        update.is_stalled = true;
        update.add_wait(Reason::BadConfiguration, "Exactly one key is required under spec.driver");
        return;
    }
    if let Some(paused_until) = restored::assignments_paused_until(&input) {
        let sentence = Reason::EtcdRestored.sentence();
        let message = format!("{sentence}: waiting until watchdogs have reset all isolated nodes");
        update.add_wait(Reason::EtcdRestored, message);
        update.wake_after(paused_until, 0, "watchdogs have reset all isolated nodes after the restore");
        return;
    }
    if let Some(message) = identity::conflict(planner, service) {
        update.add_wait(Reason::IdentityTaken, message);
        return;
    }
    let answers = answers(planner, service, &update.status);
    if answers.is_empty() {
        update.add_wait(Reason::Pending, "No node has registered yet");
        return;
    }
    let mut unanswered: Vec<String> = Vec::new();
    let mut counted_empty: Vec<NodeName> = Vec::new();
    let mut running: Vec<&NodeName> = Vec::new();
    for (node, answer) in &answers {
        match answer {
            Answer::Running => running.push(node),
            Answer::Stopped => {}
            Answer::Empty(cause) => update.unprobed_texts.push(format!("{node} ({cause})")),
            Answer::CountedEmpty(cause) => {
                update.unprobed_texts.push(format!("{node} ({cause})"));
                counted_empty.push((*node).to_owned());
            }
            Answer::Unknown(message) => {
                unanswered.push(format!("{node} cannot check the service ({message})"));
            }
            Answer::Unanswered(cause) => {
                unanswered.push(format!("{node} {cause}"));
                if let Some(health) = planner.nodes.get(*node) {
                    // The service does not wait longer for a node that stays unreachable until then.
                    update.wake_after(
                        health.late_at,
                        0,
                        "a probed node is unreachable for the heartbeat lifetime",
                    );
                }
            }
        }
    }
    if let [first, second, ..] = running.as_slice() {
        let message = super::start::multiple_active_message(service.name, first, second);
        update.status.node = Some((*first).to_owned());
        update.status.probe_generation = None;
        update.status.probe_arming = None;
        error::enter(planner, service, update, Reason::MultipleActive, message, false);
        return;
    }
    let tombstones = identity::tombstones_with_identity(input.cluster_view, service.name);
    if let (false, Some((name, _))) = (unanswered.is_empty(), tombstones.first()) {
        let message =
            format!("Deleted resource {name} may still run the same service: {}", unanswered.join(", "));
        update.add_wait(Reason::IdentityTaken, message);
        return;
    }
    if !unanswered.is_empty() {
        update.add_wait(
            Reason::NotProbed,
            format!("Waiting for nodes to report whether the service runs there: {}", unanswered.join(", ")),
        );
        return;
    }
    update.status.probe_generation = None;
    update.status.probe_arming = None;
    identity::end_tombstones(&input, service, update);
    record_counted_empty(&input, service, update, counted_empty);
    let running_node = running.first().map(|node| (*node).to_owned());
    if let Some(node) = &running_node
        && let Some(epoch) = input.cluster_view.unreleased_epoch(node)
        && let Some(copy) = copies::differing_definition(&input, service, update, node, epoch)
    {
        // The node has answered for that copy only. Once the copy is stopped, the node is probed for the service in the
        // spec.
        update.status.asked_identity = copy.identity();
    }
    match (running_node, service.requested_state()) {
        (None, RequestedState::Started) => {
            // The choice of a node, or the reason why no node is eligible, has an event.
            update.transition_without_event(
                ServiceState::RequestStart,
                Reason::Scheduled,
                "Not running yet, scheduling".to_owned(),
            );
        }
        (None, RequestedState::Stopped | RequestedState::Disabled) => {
            mark_stopped_if_unrequested(service, update);
        }
        (Some(node), RequestedState::Started) => {
            start_on(planner, service, update, &node, Reason::Adopted);
        }
        (Some(node), RequestedState::Stopped | RequestedState::Disabled) => {
            if stop_on(planner, service, update, &node) {
                update.transition_to(
                    ServiceState::Stopping,
                    Reason::Stopping,
                    format!("Stopping on {node}, where the service was found running"),
                );
            }
        }
        (_, RequestedState::Ignored) => {}
    }
}

/// Records the unreachable nodes that count as empty, under guards that none of them has sent a heartbeat in the
/// meantime (FENCING, R7.5).
///
/// A node whose epoch is open may hold an assignment that it has not begun. Its fence is therefore written again, with
/// `requires_probes`. None of the node's writes applies before its agent has read that fence, and then the agent
/// commits no permit until the leader clears `requires_probes`. A node whose epoch is closed gets no assignment before
/// this leader, or a later leader, has read this status.
fn record_counted_empty(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    counted_empty: Vec<NodeName>,
) {
    let cluster_view = input.cluster_view;
    for node in &counted_empty {
        let Some(fence) = cluster_view.fences.get(node) else { continue };
        let key = cluster_view.keys.fence(node);
        if service.is_exclusive() && fence.value.state == FenceState::Open {
            let ordered = Fence { requires_probes: true, ..fence.value.clone() };
            update.fences.insert(key, (Guard::Unchanged(fence.mod_revision), ordered));
            update.guards.insert(cluster_view.keys.alive(node), guard_of(cluster_view.alive.get(node)));
            update
                .guards
                .insert(cluster_view.keys.node_report(node), guard_of(cluster_view.node_reports.get(node)));
        } else {
            update.guards.insert(key, Guard::Unchanged(fence.mod_revision));
        }
    }
    if service.is_exclusive() {
        update.status.counted_empty = counted_empty;
    }
}

/// Removes nodes that were counted as empty and have answered since. Removes all of them once the service is no longer
/// being probed.
pub(super) fn remove_verified_nodes(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
) {
    let cluster_view = input.cluster_view;
    let uid = service.uid();
    if !cluster_view.needs_verification(service.name, uid) {
        update.status.counted_empty.clear();
    }
    update.status.counted_empty.retain(|node| !cluster_view.has_verified(service.name, uid, node));
}
