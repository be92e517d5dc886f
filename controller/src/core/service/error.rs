//! Error: the service exhausted its policies, could not be stopped, or runs twice. The leader takes no further
//! action.

use super::assign::{assign, assigned_nodes};
use super::{AssignmentChange, EpochStatus, Planner, Service, ServiceUpdate, report_guard};
use crate::core::plan_input::PlanInput;
use ha_api_types::event::EventType;
use ha_api_types::id::{Epoch, NodeName};
use ha_api_types::operation::OperationAction;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, ServiceReport};
use ha_api_types::resource::{RequestedState, ServiceState};

/// Enters Error. The status keeps `stop_confirmed`: without a confirmed stop, the service counts as running.
pub(super) fn enter(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    reason: Reason,
    message: String,
    stop_confirmed: bool,
) {
    let input = planner.input;
    match service.assignment_with_epoch(&input) {
        // The service may still run: the agent is ordered to take no action on it.
        Some((assignment, EpochStatus::Active))
            if !stop_confirmed && assigned_nodes(assignment).len() == 1 =>
        {
            let node = assignment.node.clone();
            assign(planner, service, update, &node, Action::DoNothing);
        }
        // After this report, the node can no longer start the service under the assignment, so the assignment is not
        // needed.
        Some((assignment, EpochStatus::Active)) if stop_confirmed => {
            let (key, guard) = report_guard(&input, &assignment.node, service.name);
            update.guards.insert(key, guard);
            update.assignment_change = AssignmentChange::Delete;
        }
        Some((_, EpochStatus::Active | EpochStatus::Closing | EpochStatus::Released)) | None => {}
    }
    update.status.target = None;
    update.transition_to(ServiceState::Error, reason, message);
    update.status.stop_confirmed = Some(stop_confirmed);
}

/// Handles a node that could not stop the service.
pub(super) fn stop_failed(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    report: &ServiceReport,
) {
    let node = update.status.node.clone().unwrap_or_default();
    let message = format!("Stop failed on {node}: {}", report_text(report));
    enter(planner, service, update, Reason::StopFailed, message, false);
}

fn report_text(report: &ServiceReport) -> &str {
    if report.message.is_empty() { report.reason.sentence() } else { &report.message }
}

/// Handles a registering node that could not stop the service. The service counts as running there, under the epoch
/// that will be opened.
pub(super) fn could_not_stop(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    node: &NodeName,
    epoch: Epoch,
    message: &str,
) {
    let is_already_reported = update.status.state == ServiceState::Error
        && update.status.stop_confirmed == Some(false)
        && update.status.node.as_ref() == Some(node)
        && update.status.epoch == Some(epoch);
    if is_already_reported {
        return;
    }
    let input = planner.input;
    let mut text = format!("Found running on {node}, and the stop failed: {message}");
    if let Some((assignment, EpochStatus::Active)) = service.assignment_with_epoch(&input)
        && assignment.node != *node
    {
        text = format!("{text}; assigned node: {}", assignment.node);
    }
    enter(planner, service, update, Reason::StopFailed, text, false);
    update.status.node = Some(node.to_owned());
    update.status.epoch = Some(epoch);
}

/// Leaves Error only if Disabled or clear-error is requested. Without a confirmed stop, the service goes through
/// RequestStop.
pub(super) fn error(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let input = planner.input;
    if update.status.stop_confirmed != Some(true) && is_proven_stopped(&input, service, update) {
        update.status.stop_confirmed = Some(true);
        update.emit_event(
            EventType::Normal,
            Reason::Stopping,
            "Stop confirmed: the service's node is confirmed down",
        );
    }
    let cleared = service
        .operation
        .is_some_and(|request| request.operation.value.spec.action == OperationAction::ClearError);
    let disabled = service.requested_state() == RequestedState::Disabled;
    let disarmed = input.cluster_view.settings().disarmed.is_some();
    // Admission of the node waits until the Error is stored, and only an admitted node can stop the service.
    let registering = service.not_stopped(&input).is_some();
    if disarmed || registering || (!cleared && !disabled) {
        if update.reason.is_none() {
            let (reason, message) = stored_reason(service);
            update.set_message(reason, message);
        }
        return;
    }
    let confirmed = update.status.stop_confirmed == Some(true);
    update.clear_all_failures();
    if confirmed && service.other_possible_nodes(&input, None).is_empty() {
        let (state, reason) = match service.requested_state() {
            RequestedState::Started => (ServiceState::RequestStart, Reason::Scheduled),
            RequestedState::Stopped => (ServiceState::Stopped, Reason::Stopped),
            RequestedState::Disabled | RequestedState::Ignored => (ServiceState::Disabled, Reason::Disabled),
        };
        update.transition_to(state, reason, "Error cleared".to_owned());
    } else {
        let message = "Error cleared, stopping the service before the next start".to_owned();
        update.transition_to(ServiceState::RequestStop, Reason::Stopping, message);
    }
}

/// Returns the reason and message with which the service entered Error, from its status.
fn stored_reason(service: &Service<'_>) -> (Reason, String) {
    service
        .status
        .and_then(|status| status.value.conditions.iter().find(|condition| condition.kind == "Ready"))
        .map_or((Reason::PoliciesExhausted, String::new()), |ready| (ready.reason, ready.message.clone()))
}

/// Returns `true` if the epoch under which the service may have run has since been closed with a proof.
fn is_proven_stopped(input: &PlanInput<'_>, service: &Service<'_>, update: &ServiceUpdate) -> bool {
    let (Some(node), Some(epoch)) = (&update.status.node, update.status.epoch) else { return false };
    Service::epoch_status(input, node, epoch) == EpochStatus::Released
        && service.other_possible_nodes(input, Some(node)).is_empty()
}
