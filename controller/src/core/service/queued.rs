//! Queued services: the leader has not determined yet where they run.

use super::assign::{start_on, stop_on};
use super::probe::{Answer, answers};
use super::start::wants_stop;
use super::{Assign, Draft, Planner, Service, Standing, copies, error, identity, recover, report_guard};
use crate::core::restored;
use crate::core::situation::Situation;
use crate::core::world::guard_of;
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, FenceState};
use ha_api_types::resource::{RequestedState, ResourceStatus, ServiceState};
use ha_store::Guard;

/// Returns `true` if a service that seems to be at rest may have been started by hand while the cluster was disarmed.
/// It was in Error then, and has left Error.
pub(super) fn is_to_be_looked_for(draft: &Draft) -> bool {
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
pub(super) fn after_restore(draft: &mut Draft) {
    draft.forget_failures();
    let status = &mut draft.status;
    status.target = None;
    status.epoch = None;
    status.action_uid = None;
    status.maintenance_node = None;
    status.preempted_by = None;
    status.replacement = None;
    status.move_failures = 0;
    copies::let_go(&mut status.copies);
    // No reports from before the restore exist, so the next answers are new.
    status.probe_arming = None;
    let message =
        "etcd was restored from a backup: asking every node whether the service runs there".to_owned();
    draft.go(ServiceState::Queued, Reason::EtcdRestored, message);
}

/// Probes the service on every node, because it may have been moved by hand while the cluster was disarmed (FENCING,
/// section 7).
pub(super) fn look_anew(situation: &Situation<'_>, service: &Service<'_>, draft: &mut Draft) {
    if let Some((assignment, Standing::InForce)) = service.assigned(situation) {
        let (key, guard) = report_guard(situation, &assignment.node, service.name);
        draft.guards.insert(key, guard);
    }
    if service.assignment.is_some() {
        draft.assign = Assign::Delete;
    }
    copies::let_go(&mut draft.status.copies);
    draft.status.epoch = None;
    draft.status.action_uid = None;
    let message = "Service may have been moved manually: asking every node whether it runs there".to_owned();
    draft.go(ServiceState::Queued, Reason::NotProbed, message);
}

/// Replaces an unreadable status or assignment (FENCING, R1.23). If the assignment is readable, it determines the
/// state. Otherwise the assignment is deleted, and every node is probed.
pub(super) fn unreadable(situation: &Situation<'_>, service: &Service<'_>, draft: &mut Draft) {
    let status = ResourceStatus {
        uid: service.uid().to_owned(),
        // A stop that was not confirmed stays unconfirmed.
        stop_confirmed: draft.status.stop_confirmed.filter(|confirmed| !confirmed),
        ..ResourceStatus::default()
    };
    draft.status = status;
    if situation.world.is_assignment_unreadable(service.name) {
        draft.assign = Assign::Delete;
        draft.status.probe_generation = Some(service.resource.value.metadata.generation);
    }
    let message =
        "Stored records cannot be read by this version: asking every node whether the service runs \
         there"
            .to_owned();
    draft.go(ServiceState::Queued, Reason::Unreadable, message);
}

/// Ends Queued once every node where the service might already run has answered or is proven empty. Without a
/// running copy the service can start, a single running copy is adopted where it is, and two running copies are an
/// error.
pub(super) fn queued(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let situation = planner.situation;
    if let Some(assignment) = service.assignment
        && assignment.value.definition.uid == service.uid()
        && draft.status.probe_generation.is_none()
        && draft.status.probe_arming.is_none()
    {
        // The status was lost, but not the assignment.
        recover::settle(service, draft, &assignment.value, service.phase(&situation));
        return;
    }
    if situation.world.settings().disarmed.is_some() {
        draft.wait(Reason::Disarmed, "Cluster is disarmed");
        return;
    }
    if service.resource.value.spec.driver.kind().is_none() {
        draft.infeasible = true;
        draft.wait(Reason::BadConfiguration, "Exactly one key is required under spec.driver");
        return;
    }
    if let Some(until) = restored::rests_until(&situation) {
        let sentence = Reason::EtcdRestored.sentence();
        let message = format!("{sentence}: waiting until watchdogs have reset all isolated nodes");
        draft.wait(Reason::EtcdRestored, message);
        draft.wake_after(until, 0, "watchdogs have reset all isolated nodes after the restore");
        return;
    }
    if let Some(message) = identity::taken(planner, service) {
        draft.wait(Reason::IdentityTaken, message);
        return;
    }
    let answers = answers(planner, service, &draft.status);
    if answers.is_empty() {
        draft.wait(Reason::Pending, "No node has registered yet");
        return;
    }
    let mut open: Vec<String> = Vec::new();
    let mut counted: Vec<NodeName> = Vec::new();
    let mut running: Vec<&NodeName> = Vec::new();
    for (node, answer) in &answers {
        match answer {
            Answer::Running => running.push(node),
            Answer::Stopped => {}
            Answer::Empty(why) => draft.not_probed.push(format!("{node} ({why})")),
            Answer::Counted(why) => {
                draft.not_probed.push(format!("{node} ({why})"));
                counted.push((*node).to_owned());
            }
            Answer::Unknown(message) => open.push(format!("{node} cannot check the service ({message})")),
            Answer::Missing(why) => {
                open.push(format!("{node} {why}"));
                if let Some(known) = planner.nodes.get(*node) {
                    // The service does not wait longer for a node that stays unreachable until then.
                    draft.wake_after(
                        known.late_at,
                        0,
                        "a node that was asked is unreachable for the heartbeat lifetime",
                    );
                }
            }
        }
    }
    if let [first, second, ..] = running.as_slice() {
        let message = super::start::runs_twice(service.name, first, second);
        draft.status.node = Some((*first).to_owned());
        draft.status.probe_generation = None;
        draft.status.probe_arming = None;
        error::enter(planner, service, draft, Reason::MultipleActive, message, false);
        return;
    }
    let held = identity::held_by(situation.world, service.name);
    if let (false, Some((name, _))) = (open.is_empty(), held.first()) {
        let message = format!("Deleted resource {name} may still run the same service: {}", open.join(", "));
        draft.wait(Reason::IdentityTaken, message);
        return;
    }
    if !open.is_empty() {
        draft.wait(
            Reason::NotProbed,
            format!("Waiting for nodes to report whether the service runs there: {}", open.join(", ")),
        );
        return;
    }
    draft.status.probe_generation = None;
    draft.status.probe_arming = None;
    identity::end_tombstones(&situation, service, draft);
    count_as_empty(&situation, service, draft, counted);
    let found = running.first().map(|node| (*node).to_owned());
    if let Some(node) = &found
        && let Some(epoch) = situation.world.living_epoch(node)
        && let Some(copy) = copies::differing_definition(&situation, service, draft, node, epoch)
    {
        // The node has answered for that copy only, so it is asked about the service in the spec once the copy is
        // stopped.
        draft.status.asked_identity = copy.identity();
    }
    match (found, service.wanted()) {
        (None, RequestedState::Started) => {
            draft.go(ServiceState::RequestStart, Reason::Scheduled, "Not running yet, scheduling".to_owned());
        }
        (None, RequestedState::Stopped | RequestedState::Disabled) => {
            wants_stop(service, draft);
        }
        (Some(node), RequestedState::Started) => {
            start_on(planner, service, draft, &node, Reason::Adopted);
        }
        (Some(node), RequestedState::Stopped | RequestedState::Disabled) => {
            if stop_on(planner, service, draft, &node) {
                draft.go(
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
/// A node whose epoch is open may hold an assignment that it has not begun. So its fence is written again, with
/// `verify`. None of the node's writes applies before its agent has read that fence, and then the agent commits no
/// permit until the leader clears `verify`. A node whose epoch is closed gets no assignment before this leader, or a
/// later one, has read this status.
fn count_as_empty(
    situation: &Situation<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    counted: Vec<NodeName>,
) {
    let world = situation.world;
    for node in &counted {
        let Some(fence) = world.fences.get(node) else { continue };
        let key = world.keys.fence(node);
        if service.exclusive() && fence.value.state == FenceState::Open {
            let ordered = Fence { verify: true, ..fence.value.clone() };
            draft.fences.insert(key, (Guard::Unchanged(fence.modified), ordered));
            draft.guards.insert(world.keys.alive(node), guard_of(world.alive.get(node)));
            draft.guards.insert(world.keys.node_report(node), guard_of(world.node_reports.get(node)));
        } else {
            draft.guards.insert(key, Guard::Unchanged(fence.modified));
        }
    }
    if service.exclusive() {
        draft.status.counted_empty = counted;
    }
}

/// Removes nodes that were counted as empty and have answered since. Removes all of them once the service is no longer
/// being probed.
pub(super) fn forget_verified(situation: &Situation<'_>, service: &Service<'_>, draft: &mut Draft) {
    let world = situation.world;
    let uid = service.uid();
    if !world.is_verified_at_all(service.name, uid) {
        draft.status.counted_empty.clear();
    }
    draft.status.counted_empty.retain(|node| !world.has_verified(service.name, uid, node));
}
