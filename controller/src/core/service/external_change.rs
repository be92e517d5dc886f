//! Clean stops and starts with a service's own tool that become the requested state (`externalStop: Accept`).

use super::assign::start_on;
use super::{AssignmentChange, EpochStatus, Planner, Service, ServiceUpdate, replacement};
use crate::core::plan_input::PlanInput;
use ha_api_types::event::EventType;
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment, Phase, ServiceReport};
use ha_api_types::resource::{ExternalStop, RequestedState, ServiceState};
use serde_json::{Value, json};

/// Returns `true` if the assigned node may accept a change with the service's own tool. A Disabled service stays stopped,
/// and an Ignored one is not managed.
pub(super) fn is_accepted(service: &Service<'_>) -> bool {
    service.resource.value.spec.external_stop == ExternalStop::Accept
        && match service.requested_state() {
            RequestedState::Started | RequestedState::Stopped => true,
            RequestedState::Disabled | RequestedState::Ignored => false,
        }
}

/// Rewrites the assignment, under the same action, if the resource's policy has changed since.
pub(super) fn follow_policy(input: &PlanInput<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let Some(assignment) = service.assignment.map(|assignment| &assignment.value) else { return };
    let accepts_external_stop = is_accepted(service);
    if assignment.accepts_external_stop == accepts_external_stop
        || update.assignment_change != AssignmentChange::Keep
        || !matches!(update.status.state, ServiceState::Started | ServiceState::Stopped)
        || !matches!(assignment.action, Action::Start | Action::Restart | Action::Stop { .. })
        || Service::epoch_status(input, &assignment.node, assignment.epoch) != EpochStatus::Active
    {
        return;
    }
    replacement::rewrite(input, update, Assignment { accepts_external_stop, ..assignment.clone() });
}

/// Requests Stopped for a service that was stopped with its own tool. Returns `true` if Stopped was requested.
pub(super) fn request_stop(
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    report: &ServiceReport,
) -> bool {
    let is_stop = report.external_change && report.phase == Phase::Stopped;
    if !is_stop || !is_accepted(service) || service.requested_state() != RequestedState::Started {
        return false;
    }
    let cause = if report.message.is_empty() { String::new() } else { format!(" ({})", report.message) };
    let message =
        format!("Stopped outside hactl{cause}: requested state is now Stopped (externalStop: Accept)");
    update.requested_state = Some(RequestedState::Stopped);
    update.emit_event(EventType::Normal, Reason::StoppedExternally, message.clone());
    update.set_message(Reason::StoppedExternally, message);
    true
}

/// Requests Started for a stopped service that was started with its own tool on its assigned node, and adopts the copy.
/// Returns `true` if there is such a copy.
pub(super) fn request_start(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    node: &NodeName,
    report: &ServiceReport,
) -> bool {
    let is_start = report.external_change && report.phase == Phase::ProbedRunning;
    if !is_start || !is_accepted(service) || service.requested_state() != RequestedState::Stopped {
        return false;
    }
    if start_on(planner, service, update, node, Reason::StartedExternally) {
        update.requested_state = Some(RequestedState::Started);
        let message =
            format!("Started on {node} outside hactl: requested state is now Started (externalStop: Accept)");
        update.emit_event(EventType::Normal, Reason::StartedExternally, message);
    }
    true
}

/// Returns the stored form of a resource with another requested state and the next generation. Works on JSON, so that
/// fields of a newer version remain. `None` if the stored value is not an object.
pub(super) fn with_requested_state(stored: &[u8], state: RequestedState) -> Option<Vec<u8>> {
    let mut object: Value = serde_json::from_slice(stored).ok()?;
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
    *object.pointer_mut("/metadata/generation")? = json!(generation + 1);
    object.get_mut("spec")?.as_object_mut()?.insert("state".to_owned(), json!(state));
    Some(object.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_requested_state_keeps_fields_of_a_newer_version() {
        let stored =
            json!({"metadata": {"generation": 4, "name": "web"}, "spec": {"comment": "c", "newer": [1]}});
        let written = with_requested_state(stored.to_string().as_bytes(), RequestedState::Stopped).unwrap();
        let expected = json!({
            "metadata": {"generation": 5, "name": "web"},
            "spec": {"comment": "c", "newer": [1], "state": "Stopped"},
        });
        assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), expected);
        assert_eq!(with_requested_state(b"[]", RequestedState::Stopped), None);
    }
}
