//! Error: the service exhausted its policies, could not be stopped, or runs twice. The leader takes no further
//! action.

use super::assign::{assign, places};
use super::{Assign, Draft, Planner, Service, Standing, report_guard};
use crate::core::situation::Situation;
use ha_api_types::event::EventType;
use ha_api_types::id::{Epoch, NodeName};
use ha_api_types::operation::OperationAction;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, ServiceReport};
use ha_api_types::resource::{RequestedState, ServiceState};

/// Enters Error. `stop_confirmed` is remembered: without a confirmed stop, the service counts as running.
pub(super) fn enter(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    reason: Reason,
    message: String,
    stop_confirmed: bool,
) {
    let situation = planner.situation;
    match service.assigned(&situation) {
        // The service may still run: the agent is ordered to take no action on it.
        Some((assignment, Standing::InForce)) if !stop_confirmed && places(assignment).len() == 1 => {
            let node = assignment.node.clone();
            assign(planner, service, draft, &node, Action::Leave);
        }
        // The node's report ended its right to start the service, so no assignment is needed.
        Some((assignment, Standing::InForce)) if stop_confirmed => {
            let (key, guard) = report_guard(&situation, &assignment.node, service.name);
            draft.guards.insert(key, guard);
            draft.assign = Assign::Delete;
        }
        Some((_, Standing::InForce | Standing::Closing | Standing::Released)) | None => {}
    }
    draft.status.target = None;
    draft.go(ServiceState::Error, reason, message);
    draft.status.stop_confirmed = Some(stop_confirmed);
}

/// Handles a node that could not stop the service.
pub(super) fn stop_failed(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    report: &ServiceReport,
) {
    let node = draft.status.node.clone().unwrap_or_default();
    let message = format!("Stop failed on {node}: {}", said(report));
    enter(planner, service, draft, Reason::StopFailed, message, false);
}

fn said(report: &ServiceReport) -> &str {
    if report.message.is_empty() { report.reason.sentence() } else { &report.message }
}

/// Handles a registering node that could not stop the service. The service counts as running there, under the epoch
/// that will be opened.
pub(super) fn could_not_stop(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    node: &NodeName,
    epoch: Epoch,
    message: &str,
) {
    let known = draft.status.state == ServiceState::Error
        && draft.status.stop_confirmed == Some(false)
        && draft.status.node.as_ref() == Some(node)
        && draft.status.epoch == Some(epoch);
    if known {
        return;
    }
    let situation = planner.situation;
    let mut text = format!("Found running on {node}, and the stop failed: {message}");
    if let Some((assignment, Standing::InForce)) = service.assigned(&situation)
        && assignment.node != *node
    {
        text = format!("{text}; assigned node: {}", assignment.node);
    }
    enter(planner, service, draft, Reason::StopFailed, text, false);
    draft.status.node = Some(node.to_owned());
    draft.status.epoch = Some(epoch);
}

/// Leaves Error only for requested Disabled or clear-error. Without a confirmed stop, the service goes through
/// RequestStop.
pub(super) fn error(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let situation = planner.situation;
    if draft.status.stop_confirmed != Some(true) && is_proven_stopped(&situation, service, draft) {
        draft.status.stop_confirmed = Some(true);
        draft.tell(
            EventType::Normal,
            Reason::Stopping,
            "Stop confirmed: the service's node is confirmed down",
        );
    }
    let cleared = service
        .operation
        .is_some_and(|request| request.operation.value.spec.action == OperationAction::ClearError);
    let disabled = service.wanted() == RequestedState::Disabled;
    let disarmed = situation.world.settings().disarmed.is_some();
    // Admission of the node waits until the Error is stored, and only an admitted node can stop the service.
    let registering = service.not_stopped(&situation).is_some();
    if disarmed || registering || (!cleared && !disabled) {
        if draft.reason.is_none() {
            let (reason, message) = remembered(service);
            draft.say(reason, message);
        }
        return;
    }
    let confirmed = draft.status.stop_confirmed == Some(true);
    draft.forget_failures();
    if confirmed && service.may_run_elsewhere(&situation, None).is_empty() {
        let (state, reason) = match service.wanted() {
            RequestedState::Started => (ServiceState::RequestStart, Reason::Scheduled),
            RequestedState::Stopped => (ServiceState::Stopped, Reason::Stopped),
            RequestedState::Disabled | RequestedState::Ignored => (ServiceState::Disabled, Reason::Disabled),
        };
        draft.go(state, reason, "Error cleared".to_owned());
    } else {
        let message = "Error cleared, stopping first".to_owned();
        draft.go(ServiceState::RequestStop, Reason::Stopping, message);
    }
}

/// Returns the reason and message with which the service entered Error, from its status.
fn remembered(service: &Service<'_>) -> (Reason, String) {
    service
        .status
        .and_then(|status| status.value.conditions.iter().find(|condition| condition.kind == "Ready"))
        .map_or((Reason::PoliciesExhausted, String::new()), |ready| (ready.reason, ready.message.clone()))
}

/// Returns `true` if the epoch under which the service may have run has since been closed with a proof.
fn is_proven_stopped(situation: &Situation<'_>, service: &Service<'_>, draft: &Draft) -> bool {
    let (Some(node), Some(epoch)) = (&draft.status.node, draft.status.epoch) else { return false };
    Service::standing(situation, node, epoch) == Standing::Released
        && service.may_run_elsewhere(situation, Some(node)).is_empty()
}
