//! Outcomes of operations on services.

use super::operation::{phase_of, set_status};
use super::{AssignmentChange, EpochStatus, Service, ServiceUpdate};
use crate::core::plan_input::PlanInput;
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, ServiceState};

/// Sets the outcome of a running operation, once the state of the service decides it.
pub(super) fn set_outcome(input: &PlanInput<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let Some(request) = service.operation else { return };
    let phase = update.operation.as_ref().map_or_else(|| phase_of(&request), |status| status.phase);
    if phase != OperationPhase::Running {
        if phase == OperationPhase::Pending && update.operation.is_none() {
            let (reason, message) = wait_reason(update);
            set_status(input, service, update, OperationPhase::Pending, reason, &message);
        }
        return;
    }
    let spec = &request.operation.value.spec;
    let state = update.status.state;
    let node = update.status.node.clone().unwrap_or_default();
    let message = update.message.clone();
    let is_assignment_unchanged = update.assignment_change == AssignmentChange::Keep;
    let stop_confirmed = update.status.stop_confirmed == Some(true);
    let (wait_reason_code, wait_message) = wait_reason(update);
    // Start and Stop are recorded together with their change of the requested state. A later change takes
    // precedence.
    let is_superseded = service.resource.mod_revision > request.operation.create_revision;
    let change_message = format!("Requested state changed to {:?}", service.requested_state());
    let is_replacing = update.status.replacement.is_some();
    let mut end = |phase, reason, message: &str| set_status(input, service, update, phase, reason, message);
    let failed = OperationPhase::Failed;
    match spec.action {
        OperationAction::Migrate | OperationAction::Relocate | OperationAction::Restart => match state {
            ServiceState::Started => {
                let arrived = spec.action == OperationAction::Restart || spec.node.as_ref() == Some(&node);
                if arrived {
                    end(OperationPhase::Succeeded, Reason::Completed, &format!("Running on {node}"));
                } else {
                    let message =
                        if message.is_empty() { format!("Still assigned to {node}") } else { message };
                    end(failed, Reason::MoveFailed, &message);
                }
            }
            ServiceState::Error | ServiceState::Fence | ServiceState::Recovery => {
                end(failed, Reason::MoveFailed, &message);
            }
            ServiceState::Stopped
            | ServiceState::Disabled
            | ServiceState::Ignored
            | ServiceState::Deleting => {
                end(failed, Reason::Refused, "Service start is no longer requested");
            }
            ServiceState::Queued
            | ServiceState::RequestStart
            | ServiceState::Starting
            | ServiceState::RequestStop
            | ServiceState::Stopping
            | ServiceState::Migrate
            | ServiceState::Relocate
            | ServiceState::Freeze => {}
        },
        // The node of the service carries out the replacement, and its answer is the outcome.
        OperationAction::ReplaceSecondary if is_replacing => {}
        OperationAction::ReplaceSecondary => {
            end(failed, Reason::ReplaceFailed, "No record of the replacement remains");
        }
        OperationAction::Stop => match (state, service.requested_state()) {
            (ServiceState::Stopped | ServiceState::Disabled, _)
                if is_assignment_unchanged || is_stopped(input, service) =>
            {
                end(OperationPhase::Succeeded, Reason::Completed, "Stopped");
            }
            (ServiceState::Error, _) if stop_confirmed => {
                end(OperationPhase::Succeeded, Reason::Completed, "Stopped, state is still Error");
            }
            (ServiceState::Error, _) => end(failed, Reason::StopFailed, &message),
            (ServiceState::Ignored, _) => {
                end(failed, Reason::Unmanaged, "Resource is Ignored (not managed)");
            }
            (_, RequestedState::Started) if is_superseded => end(failed, Reason::Refused, &change_message),
            (_, RequestedState::Started) => {
                let message = "Waiting for the leader to read the requested state Stopped";
                end(OperationPhase::Running, Reason::Waiting, message);
            }
            (_, RequestedState::Stopped | RequestedState::Disabled | RequestedState::Ignored) => {}
        },
        OperationAction::Start if is_superseded && service.requested_state() != RequestedState::Started => {
            end(failed, Reason::Refused, &change_message);
        }
        OperationAction::Start => match state {
            ServiceState::Started => {
                end(OperationPhase::Succeeded, Reason::Completed, &format!("Running on {node}"));
            }
            ServiceState::Error => {
                let message = format!("Resource is in Error: run \"hactl clear-error {}\"", service.name);
                end(failed, Reason::Refused, &message);
            }
            ServiceState::Ignored => {
                end(failed, Reason::Unmanaged, "Resource is Ignored (not managed)");
            }
            ServiceState::Queued
            | ServiceState::RequestStart
            | ServiceState::Starting
            | ServiceState::RequestStop
            | ServiceState::Stopping
            | ServiceState::Stopped
            | ServiceState::Migrate
            | ServiceState::Relocate
            | ServiceState::Fence
            | ServiceState::Recovery
            | ServiceState::Freeze
            | ServiceState::Disabled
            | ServiceState::Deleting => end(OperationPhase::Running, wait_reason_code, &wait_message),
        },
        OperationAction::ClearError => match state {
            // This stop of the service failed as well. Further attempts to clear the error would not help.
            ServiceState::Error
                if service.status.is_some_and(|status| status.value.state == ServiceState::Stopping) =>
            {
                end(failed, Reason::StopFailed, &message);
            }
            ServiceState::Error | ServiceState::RequestStop | ServiceState::Stopping => {}
            ServiceState::Queued
            | ServiceState::RequestStart
            | ServiceState::Starting
            | ServiceState::Started
            | ServiceState::Stopped
            | ServiceState::Migrate
            | ServiceState::Relocate
            | ServiceState::Fence
            | ServiceState::Recovery
            | ServiceState::Freeze
            | ServiceState::Disabled
            | ServiceState::Ignored
            | ServiceState::Deleting => {
                end(OperationPhase::Succeeded, Reason::Completed, "Error cleared");
            }
        },
        OperationAction::UpdateInPlace
        | OperationAction::ConfirmFenced
        | OperationAction::Fence
        | OperationAction::Unfence
        | OperationAction::FollowStore
        | OperationAction::ShutdownContinue
        | OperationAction::TestWatchdog
        | OperationAction::Balance
        | OperationAction::TestNotifications => {}
    }
}

/// Returns the condition that an operation waits for, which is that of its service.
fn wait_reason(update: &ServiceUpdate) -> (Reason, String) {
    match update.reason {
        Some(reason) if !update.message.is_empty() => {
            (reason, format!("State {:?}: {}", update.status.state, update.message))
        }
        Some(_) | None => {
            let sentence = Reason::Waiting.sentence();
            (Reason::Waiting, format!("State {:?}: {sentence}", update.status.state))
        }
    }
}

fn is_stopped(input: &PlanInput<'_>, service: &Service<'_>) -> bool {
    match service.assignment_with_epoch(input) {
        None | Some((_, EpochStatus::Released)) => true,
        Some((_, EpochStatus::Active | EpochStatus::Closing)) => {
            service.phase(input).is_some_and(|phase| !phase.may_run())
        }
    }
}
