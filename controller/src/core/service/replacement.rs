//! Replacement of the secondary of a running replicated service: requested by an operator, carried out by its node,
//! and ended by the node's answer.
//!
//! The request is part of the assignment, next to the action, so the service keeps running under its permit. Until
//! its node has answered or is proven gone, it is unknown which secondary is in use. Until then, the old secondary
//! counts, the service is not moved, and every assignment repeats the request.

use super::operation::{phase_of, set_status};
use super::{AssignmentChange, EpochStatus, Planner, Service, ServiceUpdate, report_guard};
use crate::core::placement::service_facts;
use crate::core::plan_input::PlanInput;
use ha_api_types::cluster::Disarmed;
use ha_api_types::event::EventType;
use ha_api_types::id::NodeName;
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::reason::Reason;
use ha_api_types::record::{
    Action, Assignment, FenceState, Phase, Replacement, ReplacementPhase, ReplacementReport,
};
use ha_api_types::resource::{
    ReplacementStatus, RequestedState, ServiceDefinition, ServiceState, StorageMode,
};
use ha_scheduler::secondary_refusals;
use ha_store::Guard;

/// Advances a replacement in progress, before all other decisions. Returns `true` if no other decision follows.
pub(super) fn advance(planner: &Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) -> bool {
    let input = planner.input;
    let Some(stored_replacement) = update.status.replacement.clone() else { return false };
    let assignment = service.assignment.map(|assignment| &assignment.value);
    let request = assignment.and_then(|assignment| {
        let request =
            assignment.replacement.as_ref().filter(|request| request.uid == stored_replacement.uid)?;
        Some((assignment, request))
    });
    let Some((assignment, request)) = request else {
        fail_replacement(
            &input,
            service,
            update,
            Reason::ReplaceFailed,
            "Service is no longer assigned to a node",
        );
        return false;
    };
    let node = &assignment.node;
    let epoch_status = Service::epoch_status(&input, node, assignment.epoch);
    let report = input
        .cluster_view
        .service_report(service.name, node)
        .map(|report| &report.value)
        .filter(|report| report.epoch == assignment.epoch && report.uid == *service.uid());
    let answer = report
        .and_then(|report| report.replacement.as_ref())
        .filter(|answer| answer.uid == stored_replacement.uid);
    let current_secondary = request.current_secondary.as_ref();
    match answer.map(|answer| (answer.phase, answer)) {
        Some((ReplacementPhase::Done, _)) => complete(&input, service, update, node, current_secondary),
        Some((ReplacementPhase::Failed, answer)) => {
            let reason = if answer.reason == Reason::Unknown { Reason::ReplaceFailed } else { answer.reason };
            fail_replacement(
                &input,
                service,
                update,
                reason,
                &unchanged_secondary_message(current_secondary, &answer_text(answer)),
            );
        }
        Some((ReplacementPhase::Begun, _)) | None => {
            let never_began = answer.is_none()
                && report.is_some_and(|report| {
                    report.action_uid.as_ref() == Some(&assignment.action_uid)
                        && matches!(report.phase, Phase::Stopped | Phase::Failed)
                });
            match epoch_status {
                EpochStatus::Released => {
                    let message = unchanged_secondary_message(
                        current_secondary,
                        &format!("Node {node} failed during the replacement"),
                    );
                    fail_replacement(&input, service, update, Reason::NodeFailed, &message);
                }
                EpochStatus::Active if never_began => {
                    let message = unchanged_secondary_message(
                        current_secondary,
                        "Service ended before the replacement began",
                    );
                    fail_replacement(&input, service, update, Reason::Interrupted, &message);
                }
                EpochStatus::Active | EpochStatus::Closing => {
                    return wait_for_answer(&input, service, update, assignment, request, answer.is_some());
                }
            }
        }
    }
    let (key, guard) = report_guard(&input, node, service.name);
    update.guards.insert(key, guard);
    if epoch_status == EpochStatus::Active {
        rewrite(&input, update, Assignment { replacement: None, ..assignment.clone() });
    }
    update.assignment_change != AssignmentChange::Keep
}

/// Handles a replacement without an answer yet.
fn wait_for_answer(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    assignment: &Assignment,
    request: &Replacement,
    begun: bool,
) -> bool {
    let (node, new) = (&assignment.node, &request.node);
    let in_place = request
        .current_secondary
        .as_ref()
        .map(|current_secondary| format!(" in place of {current_secondary}"))
        .unwrap_or_default();
    let message = match (request.is_canceled, begun) {
        (true, _) => format!("Node {node} is canceling the replacement of the secondary by {new}"),
        (false, true) => format!("Node {node} is making {new} the secondary{in_place}"),
        (false, false) => format!("Waiting for node {node} to make {new} the secondary{in_place}"),
    };
    if is_still_requested(service) {
        set_status(input, service, update, OperationPhase::Running, Reason::ReplacingSecondary, &message);
    }
    if Service::epoch_status(input, node, assignment.epoch) != EpochStatus::Active {
        return false;
    }
    update.set_message(Reason::ReplacingSecondary, message);
    let must_end_first = must_end(input, service);
    if (must_end_first || !is_still_requested(service)) && !request.is_canceled {
        let replacement = Some(Replacement { is_canceled: true, ..request.clone() });
        rewrite(input, update, Assignment { replacement, ..assignment.clone() });
    }
    must_end_first || update.assignment_change != AssignmentChange::Keep
}

/// Returns `true` if the replacement must end, because the service is about to become unmanaged.
fn must_end(input: &PlanInput<'_>, service: &Service<'_>) -> bool {
    service.requested_state() == RequestedState::Ignored
        || service.resource.value.metadata.deletion_timestamp.is_some()
        || input.cluster_view.settings().disarmed == Some(Disarmed::Ignore)
}

/// Writes the active assignment again, under the same action and with the guards of every assignment.
pub(super) fn rewrite(input: &PlanInput<'_>, update: &mut ServiceUpdate, assignment: Assignment) {
    let node = &assignment.node;
    if let Some(fence) = input.cluster_view.fences.get(node) {
        update.guards.insert(input.cluster_view.keys.fence(node), Guard::Unchanged(fence.mod_revision));
    }
    update.assignment_change = AssignmentChange::Put(Box::new(assignment));
}

fn answer_text(answer: &ReplacementReport) -> String {
    if answer.message.is_empty() { answer.reason.sentence().to_owned() } else { answer.message.clone() }
}

fn unchanged_secondary_message(current_secondary: Option<&NodeName>, message: &str) -> String {
    match current_secondary {
        Some(current_secondary) => format!("{message}; {current_secondary} remains the secondary"),
        None => format!("{message}; the resource remains without a secondary"),
    }
}

fn complete(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    node: &NodeName,
    current_secondary: Option<&NodeName>,
) {
    let Some(ReplacementStatus { node: new, .. }) = update.status.replacement.take() else { return };
    let storage = service.resource.value.spec.storage.as_ref();
    update.status.declared_secondary = storage.and_then(|storage| storage.secondary.clone());
    let mut replicas = vec![node.to_owned(), new.clone()];
    replicas.sort();
    update.status.replicas = replicas;
    let in_place = current_secondary
        .map(|current_secondary| format!(" in place of {current_secondary}"))
        .unwrap_or_default();
    let message = format!("{new} is the secondary{in_place}");
    update.emit_event(EventType::Normal, Reason::SecondaryReplaced, message.clone());
    set_outcome(input, service, update, OperationPhase::Succeeded, Reason::SecondaryReplaced, &message);
}

fn fail_replacement(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    reason: Reason,
    message: &str,
) {
    update.status.replacement = None;
    let text = format!("Secondary not replaced: {message}");
    update.emit_event(EventType::Warning, Reason::ReplaceFailed, text);
    set_outcome(input, service, update, OperationPhase::Failed, reason, message);
}

/// Returns `true` if the operation that began the replacement still exists; its deletion cancels the replacement.
fn is_still_requested(service: &Service<'_>) -> bool {
    service.operation.is_some_and(|request| {
        request.operation.value.spec.action == OperationAction::ReplaceSecondary
            && phase_of(&request) == OperationPhase::Running
    })
}

/// Sets the outcome of the operation.
fn set_outcome(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    phase: OperationPhase,
    reason: Reason,
    message: &str,
) {
    if is_still_requested(service) {
        set_status(input, service, update, phase, reason, message);
    }
}

/// Returns the request that a new assignment on the current node repeats while the node has not answered, marked as
/// canceled.
pub(super) fn repeated_request(update: &ServiceUpdate, assignment: &Assignment) -> Option<Replacement> {
    let stored_replacement = update.status.replacement.as_ref()?;
    let request = assignment.replacement.as_ref().filter(|request| request.uid == stored_replacement.uid)?;
    Some(Replacement { is_canceled: true, ..request.clone() })
}

/// Returns why the operation can never be carried out in the current state.
pub(super) fn refusal(
    planner: &Planner<'_>,
    service: &Service<'_>,
    update: &ServiceUpdate,
) -> Option<(Reason, String)> {
    let (name, spec) = (service.name, &service.resource.value.spec);
    let refused = |message: String| Some((Reason::Refused, message));
    let Some(target) = service.operation.and_then(|request| request.operation.value.spec.node.as_ref())
    else {
        return Some((Reason::Invalid, "No node specified: set spec.node".to_owned()));
    };
    if !spec.storage.as_ref().is_some_and(|storage| storage.mode == StorageMode::Replicated) {
        return refused(format!("{name} has no secondary: spec.storage.mode is not Replicated"));
    }
    if !spec.exclusive {
        return refused(format!("{name} has exclusive: false, so hactl does not move its data"));
    }
    if !spec.driver.can_replace_secondary() {
        return refused(format!(
            "Driver of {name} cannot replace the secondary: add a replaceSecondary command (driver exec)"
        ));
    }
    if update.status.state != ServiceState::Started {
        let state = update.status.state;
        return refused(format!(
            "{name} is in state {state:?}: the secondary can be replaced only in state Started"
        ));
    }
    let started = service.assignment.map(|assignment| assignment.value.definition.driver.kind());
    if started.is_some_and(|started| started != spec.driver.kind()) {
        return refused(format!(
            "{name} was started by a different driver: run \"hactl restart {name}\" first"
        ));
    }
    let Some(node) = planner.view.nodes.get(target) else {
        return Some((Reason::NotFound, format!("Node {target} not found")));
    };
    if update.status.node.as_ref() == Some(target) {
        return refused(format!("{name} runs on {target}: the secondary must be another node"));
    }
    if update.status.secondary() == Some(target) {
        return Some((Reason::CurrentNode, format!("{target} is already the secondary of {name}")));
    }
    let facts = service_facts(planner.input.cluster_view, &service.resource.value, &update.status);
    let refusals = secondary_refusals(&planner.view, name, &facts, target, node);
    let first = refusals.first()?;
    let messages: Vec<&str> = refusals.iter().map(|refusal| refusal.message.as_str()).collect();
    Some((first.reason, format!("{target} is not eligible as the secondary: {}", messages.join(", "))))
}

/// Orders the node of a running service to begin. Returns `false` if that is not possible yet; the draft then names
/// the condition to wait for.
pub(super) fn begin(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    target: &NodeName,
) -> bool {
    let input = planner.input;
    let cluster_view = input.cluster_view;
    let Some(assignment) = service.assignment.map(|assignment| &assignment.value) else { return false };
    let node = assignment.node.clone();
    let runs = match &assignment.action {
        Action::Start | Action::Restart => service.phase(&input) == Some(Phase::Running),
        Action::Stop { .. } | Action::Migrate { .. } | Action::DoNothing => false,
    };
    if !runs {
        let message = format!("Waiting for node {node} to confirm that the service runs");
        planner.await_action(update, &node, Reason::Waiting, message);
        return false;
    }
    let limit = usize::try_from(cluster_view.settings().max_migrations).unwrap_or(usize::MAX).max(1);
    for place in [&node, target] {
        if super::moves::moves_in_progress_on(planner, place) >= limit {
            let message = format!(
                "{limit} live migrations or replacements in progress on {place}, limit reached \
                 (maxMigrations)"
            );
            update.add_wait(Reason::Waiting, message);
            return false;
        }
    }
    let Some(fence) = cluster_view.fences.get(target).filter(|fence| fence.value.state == FenceState::Open)
    else {
        update.add_wait(Reason::NodeNotOnline, format!("Node {target} is not registered"));
        return false;
    };
    update.guards.insert(cluster_view.keys.fence(target), Guard::Unchanged(fence.mod_revision));
    let (key, guard) = report_guard(&input, &node, service.name);
    update.guards.insert(key, guard);
    let replacement = Replacement {
        uid: planner.action_uid().to_string().into(),
        current_secondary: update.status.secondary().cloned(),
        node: target.to_owned(),
        definition: ServiceDefinition::of(&service.resource.value),
        is_canceled: false,
    };
    planner.replacements.push([node.clone(), target.to_owned()]);
    update.status.replacement =
        Some(ReplacementStatus { uid: replacement.uid.clone(), node: target.to_owned() });
    let message = match &replacement.current_secondary {
        Some(current_secondary) => format!("Making {target} the secondary in place of {current_secondary}"),
        None => format!("Making {target} the secondary"),
    };
    rewrite(&input, update, Assignment { replacement: Some(replacement), ..assignment.clone() });
    update.emit_event(EventType::Normal, Reason::ReplacingSecondary, message.clone());
    update.set_message(Reason::ReplacingSecondary, message);
    true
}

/// Returns the number of replacements in progress that copy from or to a node, including those of this plan.
pub(super) fn replacements_in_progress_on(planner: &Planner<'_>, node: &NodeName) -> usize {
    let statuses = planner.input.cluster_view.resource_statuses.values().map(|status| &status.value);
    let copies = statuses.filter(|status| {
        let new = status.replacement.as_ref().map(|replacement| &replacement.node);
        new.is_some() && (new == Some(node) || status.node.as_ref() == Some(node))
    });
    copies.count()
        + planner.replacements.iter().filter(|places| places.iter().any(|place| place == node)).count()
}
