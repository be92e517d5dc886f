//! Queued services: the leader has not determined yet where they run.

use super::assign::{start_on, stop_on};
use super::probe::{Answer, answers};
use super::start::mark_stopped_if_unrequested;
use super::{
    AssignmentChange, EpochStatus, Planner, Service, ServiceDraft, copies, error, identity, recover,
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
pub(super) fn needs_new_probe(draft: &ServiceDraft) -> bool {
    draft.status.probe_arming.is_some()
        && match draft.status.state {
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
pub(super) fn probe_after_restore(draft: &mut ServiceDraft) {
    draft.clear_all_failures();
    let status = &mut draft.status;
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
    draft.transition_to(ServiceState::Queued, Reason::EtcdRestored, message);
}

/// Probes the service on every node, because it may have been moved by hand while the cluster was disarmed (FENCING,
/// section 7).
pub(super) fn probe_all_nodes(input: &PlanInput<'_>, service: &Service<'_>, draft: &mut ServiceDraft) {
    if let Some((assignment, EpochStatus::Active)) = service.assigned(input) {
        let (key, guard) = report_guard(input, &assignment.node, service.name);
        draft.guards.insert(key, guard);
    }
    if service.assignment.is_some() {
        draft.assignment_change = AssignmentChange::Delete;
    }
    copies::mark_unguarded(&mut draft.status.copies);
    draft.status.epoch = None;
    draft.status.action_uid = None;
    let message = "Service may have been moved manually: asking every node whether it runs there".to_owned();
    draft.transition_to(ServiceState::Queued, Reason::NotProbed, message);
}

/// Replaces an unreadable status or assignment (FENCING, R1.23). If the assignment is readable, it determines the
/// state. Otherwise the assignment is deleted, and every node is probed.
pub(super) fn replace_unreadable_records(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    draft: &mut ServiceDraft,
) {
    let status = ResourceStatus {
        uid: service.uid().clone(),
        // A stop that was not confirmed stays unconfirmed.
        stop_confirmed: draft.status.stop_confirmed.filter(|confirmed| !confirmed),
        ..ResourceStatus::default()
    };
    draft.status = status;
    if input.cluster_view.is_assignment_unreadable(service.name) {
        draft.assignment_change = AssignmentChange::Delete;
        draft.status.probe_generation = Some(service.resource.value.metadata.generation);
    }
    let message =
        "Stored records cannot be read by this version: asking every node whether the service runs \
         there"
            .to_owned();
    draft.transition_to(ServiceState::Queued, Reason::Unreadable, message);
}

/// Ends Queued once every node where the service might already run has answered or is proven empty. Without a
/// running copy the service can start, a single running copy is adopted where it is, and two running copies are an
/// error.
pub(super) fn queued(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut ServiceDraft) {
    let input = planner.input;
    if let Some(assignment) = service.assignment
        && assignment.value.definition.uid == *service.uid()
        && draft.status.probe_generation.is_none()
        && draft.status.probe_arming.is_none()
    {
        // The status was lost, but not the assignment.
        recover::resume_from_assignment(service, draft, &assignment.value, service.phase(&input));
        return;
    }
    if input.cluster_view.settings().disarmed.is_some() {
        draft.add_wait(Reason::Disarmed, "Cluster is disarmed");
        return;
    }
    if service.resource.value.spec.driver.kind().is_none() {
        draft.is_stalled = true;
        draft.add_wait(Reason::BadConfiguration, "Exactly one key is required under spec.driver");
        return;
    }
    if let Some(paused_until) = restored::assignments_paused_until(&input) {
        let sentence = Reason::EtcdRestored.sentence();
        let message = format!("{sentence}: waiting until watchdogs have reset all isolated nodes");
        draft.add_wait(Reason::EtcdRestored, message);
        draft.wake_after(paused_until, 0, "watchdogs have reset all isolated nodes after the restore");
        return;
    }
    if let Some(message) = identity::conflict(planner, service) {
        draft.add_wait(Reason::IdentityTaken, message);
        return;
    }
    let answers = answers(planner, service, &draft.status);
    if answers.is_empty() {
        draft.add_wait(Reason::Pending, "No node has registered yet");
        return;
    }
    let mut unanswered: Vec<String> = Vec::new();
    let mut counted_empty: Vec<NodeName> = Vec::new();
    let mut running: Vec<&NodeName> = Vec::new();
    for (node, answer) in &answers {
        match answer {
            Answer::Running => running.push(node),
            Answer::Stopped => {}
            Answer::Empty(why) => draft.not_probed.push(format!("{node} ({why})")),
            Answer::CountedEmpty(why) => {
                draft.not_probed.push(format!("{node} ({why})"));
                counted_empty.push((*node).to_owned());
            }
            Answer::Unknown(message) => {
                unanswered.push(format!("{node} cannot check the service ({message})"));
            }
            Answer::Unanswered(why) => {
                unanswered.push(format!("{node} {why}"));
                if let Some(known) = planner.nodes.get(*node) {
                    // The service does not wait longer for a node that stays unreachable until then.
                    draft.wake_after(
                        known.late_at,
                        0,
                        "a probed node is unreachable for the heartbeat lifetime",
                    );
                }
            }
        }
    }
    if let [first, second, ..] = running.as_slice() {
        let message = super::start::multiple_active_message(service.name, first, second);
        draft.status.node = Some((*first).to_owned());
        draft.status.probe_generation = None;
        draft.status.probe_arming = None;
        error::enter(planner, service, draft, Reason::MultipleActive, message, false);
        return;
    }
    let tombstones = identity::tombstones_with_identity(input.cluster_view, service.name);
    if let (false, Some((name, _))) = (unanswered.is_empty(), tombstones.first()) {
        let message =
            format!("Deleted resource {name} may still run the same service: {}", unanswered.join(", "));
        draft.add_wait(Reason::IdentityTaken, message);
        return;
    }
    if !unanswered.is_empty() {
        draft.add_wait(
            Reason::NotProbed,
            format!("Waiting for nodes to report whether the service runs there: {}", unanswered.join(", ")),
        );
        return;
    }
    draft.status.probe_generation = None;
    draft.status.probe_arming = None;
    identity::end_tombstones(&input, service, draft);
    record_counted_empty(&input, service, draft, counted_empty);
    let running_node = running.first().map(|node| (*node).to_owned());
    if let Some(node) = &running_node
        && let Some(epoch) = input.cluster_view.unreleased_epoch(node)
        && let Some(copy) = copies::differing_definition(&input, service, draft, node, epoch)
    {
        // The node has answered for that copy only. Once the copy is stopped, the node is probed for the service in the
        // spec.
        draft.status.asked_identity = copy.identity();
    }
    match (running_node, service.requested_state()) {
        (None, RequestedState::Started) => {
            // The choice of a node, or the reason why no node is eligible, has an event.
            draft.transition_without_event(
                ServiceState::RequestStart,
                Reason::Scheduled,
                "Not running yet, scheduling".to_owned(),
            );
        }
        (None, RequestedState::Stopped | RequestedState::Disabled) => {
            mark_stopped_if_unrequested(service, draft);
        }
        (Some(node), RequestedState::Started) => {
            start_on(planner, service, draft, &node, Reason::Adopted);
        }
        (Some(node), RequestedState::Stopped | RequestedState::Disabled) => {
            if stop_on(planner, service, draft, &node) {
                draft.transition_to(
                    ServiceState::Stopping,
                    Reason::Stopping,
                    format!("Stopping on {node}, where the service was found running"),
                );
            }
        }
        (_, RequestedState::Ignored) => {}
    }
}

/// Records the unreachable nodes that count as empty, under guards that none of them has sent a heartbeat meanwhile
/// (FENCING, R7.5).
///
/// A node whose epoch is open may hold an assignment that it has not begun. Its fence is therefore written again, with
/// `verify`. None of the node's writes applies before its agent has read that fence, and then the agent commits no
/// permit until the leader clears `verify`. A node whose epoch is closed gets no assignment before this leader, or a
/// later leader, has read this status.
fn record_counted_empty(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    draft: &mut ServiceDraft,
    counted_empty: Vec<NodeName>,
) {
    let cluster_view = input.cluster_view;
    for node in &counted_empty {
        let Some(fence) = cluster_view.fences.get(node) else { continue };
        let key = cluster_view.keys.fence(node);
        if service.exclusive() && fence.value.state == FenceState::Open {
            let ordered = Fence { verify: true, ..fence.value.clone() };
            draft.fences.insert(key, (Guard::Unchanged(fence.modified), ordered));
            draft.guards.insert(cluster_view.keys.alive(node), guard_of(cluster_view.alive.get(node)));
            draft
                .guards
                .insert(cluster_view.keys.node_report(node), guard_of(cluster_view.node_reports.get(node)));
        } else {
            draft.guards.insert(key, Guard::Unchanged(fence.modified));
        }
    }
    if service.exclusive() {
        draft.status.counted_empty = counted_empty;
    }
}

/// Removes nodes that were counted as empty and have answered since. Removes all of them once the service is no longer
/// being probed.
pub(super) fn remove_verified_nodes(input: &PlanInput<'_>, service: &Service<'_>, draft: &mut ServiceDraft) {
    let cluster_view = input.cluster_view;
    let uid = service.uid();
    if !cluster_view.needs_verification(service.name, uid) {
        draft.status.counted_empty.clear();
    }
    draft.status.counted_empty.retain(|node| !cluster_view.has_verified(service.name, uid, node));
}
