//! Creation of assignments, with every guard of FENCING, sections 6 to 8. No other module creates assignments.

use super::{
    AssignmentChange, EpochStatus, Planner, Service, ServiceUpdate, copies, external_change, fence_guard,
    identity, in_place, migrate, replacement, report_guard,
};
use crate::core::health::Health;
use crate::core::plan_input::PlanInput;
use ha_api_types::id::{Epoch, NodeName, ResourceName, Revision};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment, FenceState, Phase};
use ha_api_types::resource::{ServiceDefinition, ServiceState};
use ha_store::Guard;
use std::collections::BTreeMap;

/// Assigns an action on a node, if the service may be assigned there now; otherwise reports the condition to wait for.
///
/// Guarantees: the node's fence is guarded, open, and its epoch and boot id are copied. A service leaves its node only
/// under a guard on the evidence that it stopped there. The evidence is a report of Stopped or Failed for the current
/// action, or a fence with a newer epoch that is not Fencing. Errors: returns `false`, and the draft names the
/// condition to wait for.
pub(super) fn assign(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    node: &NodeName,
    action: Action,
) -> bool {
    let input = planner.input;
    let cluster_view = input.cluster_view;
    let Some(fence) = cluster_view.fences.get(node).filter(|fence| fence.value.state == FenceState::Open)
    else {
        update.add_wait(Reason::NodeNotOnline, format!("Node {node} is not registered"));
        return false;
    };
    if let Some((starting_node, resources)) = start_node(&action, node)
        .and_then(|starting_node| Some((starting_node, planner.unverified.get(starting_node)?)))
    {
        let sentence = Reason::NodeUnverified.sentence();
        let message = format!("{starting_node}: {sentence}: {}", first_names(resources));
        update.add_wait(Reason::NodeUnverified, message);
        return false;
    }
    if action == Action::Start
        && let Some(message) = identity::conflict(planner, service)
    {
        update.add_wait(Reason::IdentityTaken, message);
        return false;
    }
    let mut guards: BTreeMap<String, Guard> = BTreeMap::new();
    guards.insert(cluster_view.keys.fence(node), Guard::Unchanged(fence.mod_revision));
    if let Some(assignment) = service.assignment {
        for (other_node, epoch) in assigned_nodes(&assignment.value) {
            if other_node == node && epoch == fence.value.epoch {
                // The decision depends on the reports of this node so far.
                let (key, guard) = report_guard(&input, other_node, service.name);
                guards.insert(key, guard);
                continue;
            }
            if let Some(requested_replacement) = &update.status.replacement
                && Service::epoch_status(&input, other_node, epoch) != EpochStatus::Released
            {
                let message = format!(
                    "Waiting for node {other_node} to report whether {} became the secondary",
                    requested_replacement.node
                );
                update.add_wait(Reason::ReplacingSecondary, message);
                return false;
            }
            match prove_not_running(planner, service, other_node, epoch, node) {
                Ok(proof_guards) => guards.extend(proof_guards),
                Err((reason, message)) => {
                    update.add_wait(reason, message);
                    return false;
                }
            }
        }
    }
    if let Action::Migrate { target, .. } = &action
        && let Some((key, revision)) = fence_guard(&input, target)
    {
        guards.insert(key, Guard::Unchanged(revision));
    }
    let definition = definition(&input, service, update, node, fence.value.epoch, &action);
    if definition.exclusive && may_start_service(&action) {
        match copies::prove_no_other_copy(&input, service, update, node) {
            Ok(proof_guards) => guards.extend(proof_guards),
            Err(silent) => {
                let message = format!(
                    "Node {} may still run a copy. Wait until the node is reachable again. WARNING: data loss if the copy \
                     runs. Only if you have checked that it does not run, run \"hactl start {} --not-on {}\"",
                    silent, service.name, silent
                );
                update.add_wait(Reason::CopyRemains, message);
                return false;
            }
        }
    }
    let replacement =
        service.assignment.and_then(|assignment| replacement::repeated_request(update, &assignment.value));
    let action_uid = planner.action_uid();
    update.status.node = Some(node.to_owned());
    update.status.epoch = Some(fence.value.epoch);
    update.status.action_uid = Some(action_uid.clone());
    update.assignment_change = AssignmentChange::Put(Box::new(Assignment {
        node: node.to_owned(),
        epoch: fence.value.epoch,
        boot_id: fence.value.boot_id.clone(),
        action_uid,
        action,
        in_place: in_place::repeated_confirmation(service, node, fence.value.epoch, &definition),
        definition,
        accepts_external_stop: external_change::is_accepted(service),
        replacement,
        source_end_revision: migrate::unanswered_arrival(&input, service, node, fence.value.epoch),
    }));
    update.guards.extend(guards);
    true
}

/// Returns the node that needs a permit for an action; `None` if the action needs none.
fn start_node<'a>(action: &'a Action, node: &'a NodeName) -> Option<&'a str> {
    match action {
        Action::Start | Action::Restart => Some(node),
        Action::Migrate { target, .. } => Some(target),
        Action::Stop { .. } | Action::DoNothing => None,
    }
}

/// Returns at most five names and the number of the remaining names, for a condition.
pub(in crate::core) fn first_names(names: &[ResourceName]) -> String {
    const SHOWN: usize = 5;
    let omitted = names.len().saturating_sub(SHOWN);
    let shown = names.iter().take(SHOWN).map(ResourceName::as_str).collect::<Vec<_>>().join(", ");
    if omitted > 0 { format!("{shown} and {omitted} more") } else { shown }
}

/// Returns the nodes that an assignment names, with their epochs.
pub(super) fn assigned_nodes(assignment: &Assignment) -> Vec<(&NodeName, Epoch)> {
    let mut nodes = vec![(&assignment.node, assignment.epoch)];
    if let Action::Migrate { target, target_epoch, .. } = &assignment.action {
        nodes.push((target, *target_epoch));
    }
    nodes
}

/// Returns guards that prove that the service no longer runs on a node, or the reason why that cannot be proven.
fn prove_not_running(
    planner: &Planner<'_>,
    service: &Service<'_>,
    other_node: &NodeName,
    epoch: Epoch,
    for_node: &str,
) -> Result<Vec<(String, Guard)>, (Reason, String)> {
    let input = planner.input;
    let fence = fence_guard(&input, other_node).map(|(key, revision)| (key, Guard::Unchanged(revision)));
    let epoch_status = Service::epoch_status(&input, other_node, epoch);
    if epoch_status == EpochStatus::Released {
        return match unproven_target(&input, service, other_node, for_node) {
            Some(message) => Err((Reason::Fencing, message)),
            None => Ok(fence.into_iter().collect()),
        };
    }
    let Some(assignment) = service.assignment.map(|assignment| &assignment.value) else {
        return Ok(Vec::new());
    };
    let report = service.answer_of(&input, other_node, epoch, &assignment.action_uid);
    let phase = report.map(|report| report.value.phase);
    let is_target = *other_node != assignment.node;
    let stopped = match phase {
        Some(Phase::Stopped | Phase::Failed | Phase::HandedOver) => true,
        // After a new assignment, a target without a permit cannot commit a permit. If the service moves back to a
        // source that has not handed over, a paused copy never runs.
        None => is_target,
        Some(Phase::Receiving) => is_target && for_node == assignment.node,
        Some(Phase::StopFailed) => {
            is_target && for_node == assignment.node && migrate::is_never_resumed(&input, service, assignment)
        }
        Some(
            Phase::ProbedRunning
            | Phase::ProbedStopped
            | Phase::ProbedUnknown
            | Phase::Starting
            | Phase::Running
            | Phase::Stopping
            | Phase::HandingOver
            | Phase::MoveFailed,
        ) => false,
    };
    if stopped {
        let mut guards = vec![report_guard(&input, other_node, service.name)];
        guards.extend(fence);
        return Ok(guards);
    }
    // The service may run twice, so no stop on an unreachable node is awaited (FENCING, section 10).
    let silent = planner.nodes.get(other_node).is_none_or(|node| match node.health {
        Health::Late | Health::Fencing | Health::Unregistered | Health::Down(_) => true,
        Health::Registering
        | Health::Online
        | Health::ShuttingDown(_)
        | Health::Restarting
        | Health::Leaving(_) => false,
    });
    if service.may_run_twice() && silent {
        return Ok(fence.into_iter().collect());
    }
    match epoch_status {
        EpochStatus::Closing => Err((
            Reason::Fencing,
            format!("Service may still run on {other_node}: fencing is not confirmed yet"),
        )),
        EpochStatus::Active | EpochStatus::Released => Err((
            Reason::Waiting,
            format!("Waiting for node {other_node} to confirm that the service is stopped"),
        )),
    }
}

/// Returns why the service may still run on `other_node`, although the epoch of this migration target was closed with a
/// proof (R8.17); `None` if the proof suffices. The proof always suffices if `for_node` is the source, where the
/// service stays, or the target itself, which may be probed.
fn unproven_target(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    other_node: &NodeName,
    for_node: &str,
) -> Option<String> {
    let assignment = service.assignment.map(|assignment| &assignment.value)?;
    let Action::Migrate { target, .. } = &assignment.action else { return None };
    let concerns = other_node == target && for_node != other_node && for_node != assignment.node;
    (concerns && !migrate::proof_covers_migration(input, service, assignment, target))
        .then(|| format!("Service may have arrived on {other_node} after that node was fenced"))
}

/// Returns the definition of an assignment. A running service is stopped, handed over and monitored under the
/// definition of its start, even if the spec has changed since. A start uses the current spec.
///
/// A copy whose identity differs from the spec, as after a restore, keeps running until it is stopped. The stop uses
/// the definition of its start (FENCING, R6.11).
fn definition(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &ServiceUpdate,
    node: &NodeName,
    epoch: Epoch,
    action: &Action,
) -> ServiceDefinition {
    let current = ServiceDefinition::of(&service.resource.value);
    let differing = || copies::differing_definition(input, service, update, node, epoch);
    let assigned = service.assignment.map(|assignment| &assignment.value);
    let assigned = assigned.filter(|assignment| assignment.definition.uid == current.uid);
    let is_here = assigned.is_some_and(|assignment| assigned_nodes(assignment).contains(&(node, epoch)));
    let assigned = assigned.map(|assignment| assignment.definition.clone());
    let action_definition = match action {
        Action::Start => differing(),
        Action::Restart => None,
        Action::Stop { .. } | Action::Migrate { .. } | Action::DoNothing if is_here => assigned,
        Action::Stop { .. } | Action::Migrate { .. } | Action::DoNothing => differing().or(assigned),
    };
    action_definition.unwrap_or(current)
}

fn may_start_service(action: &Action) -> bool {
    match action {
        Action::Start | Action::Restart | Action::Migrate { .. } => true,
        Action::Stop { .. } | Action::DoNothing => false,
    }
}

/// Orders a node to stop the copy that arrived there in a live migration whose source ended at this revision.
pub(super) fn stop_arrivals_on(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    node: &NodeName,
    source_end: Revision,
) -> bool {
    let is_assigned = stop_on(planner, service, update, node);
    ask_about_arrivals(update, source_end);
    is_assigned
}

/// Orders the node of a new assignment to report whether a live migration has arrived. The source of the migration
/// ended at this revision. Until the node answers, a proof that closes its epoch may be older than an arrival (FENCING,
/// R8.17).
pub(super) fn ask_about_arrivals(update: &mut ServiceUpdate, source_end: Revision) {
    if let AssignmentChange::Put(assignment) = &mut update.assignment_change {
        assignment.source_end_revision = Some(source_end);
    }
}

/// Assigns a start and enters Starting.
pub(super) fn start_on(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    node: &NodeName,
    reason: Reason,
) -> bool {
    if !assign(planner, service, update, node, Action::Start) {
        return false;
    }
    update.status.target = None;
    update.transition_to(
        ServiceState::Starting,
        reason,
        format!("Starting on {node}: {}", reason.sentence()),
    );
    true
}

pub(super) fn stop_on(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    node: &NodeName,
) -> bool {
    let timeout_ms = super::operation::stop_timeout_ms(service);
    assign(planner, service, update, node, Action::Stop { timeout_ms })
}
