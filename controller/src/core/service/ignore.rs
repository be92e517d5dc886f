//! Ignored services: not managed, and left unchanged.

use super::assign::assigned_nodes;
use super::{AssignmentChange, EpochStatus, Service, ServiceUpdate, report_guard};
use crate::core::plan_input::PlanInput;
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Phase, ServiceReport};
use ha_api_types::resource::{RequestedState, ServiceState};

/// Stops managing the service and leaves it unchanged. A cutover in progress ends first. Then the assignment is
/// deleted, and the service is Queued until no agent acts on it. Returns `true` if no state function follows.
pub(super) fn enter(input: &PlanInput<'_>, service: &Service<'_>, update: &mut ServiceUpdate) -> bool {
    if is_handing_over(input, service) {
        update.add_wait(Reason::Waiting, "Waiting for the cutover of the live migration to end");
        return false;
    }
    if let Some(target) = update.status.target.take()
        && target_phase(input, service) == Some(Phase::Running)
    {
        update.status.node = Some(target);
    }
    update.clear_all_failures();
    update.status.maintenance_node = None;
    update.status.preempted_by = None;
    update.status.epoch = None;
    update.status.action_uid = None;
    super::copies::mark_unguarded(&mut update.status.copies);
    if let Some(assignment) = service.assignment {
        update.assignment_change = AssignmentChange::Delete;
        // A permit that is committed before the assignment is deleted must be seen first.
        for (node, _) in assigned_nodes(&assignment.value) {
            update.guards.extend([report_guard(input, node, service.name)]);
        }
    }
    let managing_node = managing_nodes(input, service, update.status.node.as_ref()).next();
    if let Some(node) = managing_node {
        let message = unconfirmed_message(node);
        update.status.probe_generation = Some(service.resource.value.metadata.generation);
        if update.status.state != ServiceState::Queued {
            update.transition_to(ServiceState::Queued, Reason::Waiting, message.clone());
        }
        update.add_wait(Reason::Waiting, message);
        return true;
    }
    update.status.probe_generation = None;
    update.transition_to(ServiceState::Ignored, Reason::Unmanaged, String::new());
    false
}

/// Returns the message about a node that does not confirm the end of the assignment.
pub(super) fn unconfirmed_message(node: &NodeName) -> String {
    format!("Waiting for node {node} to confirm that its agent no longer manages the service")
}

/// Returns the nodes whose agents may still act on the service: the report is that of an order, and its epoch has no
/// proof. Once an agent has read the end of the assignment, it deletes the report of an Ignored service, and answers for
/// another service as for one that is not assigned.
pub(super) fn managing_nodes<'a>(
    input: &PlanInput<'a>,
    service: &Service<'_>,
    assigned_node: Option<&NodeName>,
) -> impl Iterator<Item = &'a NodeName> {
    let reports = input.cluster_view.service_reports.get(service.name).into_iter().flatten();
    let acts = move |node: &NodeName, report: &ServiceReport| {
        let is_of_order = report.action_uid.is_some() && assigned_node == Some(node);
        report.uid == *service.uid()
            && (report.phase.is_permitted() || is_of_order)
            && Service::epoch_status(input, node, report.epoch) != EpochStatus::Released
    };
    reports.filter(move |(node, report)| acts(node, &report.value)).map(|(node, _)| node)
}

/// Returns `true` if the service may be on either of two nodes right now.
pub(super) fn is_handing_over(input: &PlanInput<'_>, service: &Service<'_>) -> bool {
    let Some(assignment) = service.assignment.map(|assignment| &assignment.value) else { return false };
    let Action::Migrate { target, target_epoch, .. } = &assignment.action else { return false };
    let epoch_status = |node: &NodeName, epoch| Service::epoch_status(input, node, epoch);
    match service.phase(input) {
        Some(Phase::HandingOver) => epoch_status(&assignment.node, assignment.epoch) != EpochStatus::Released,
        // The cutover has ended once the target has reported its outcome.
        Some(Phase::HandedOver) => match target_phase(input, service) {
            Some(Phase::Running | Phase::Failed | Phase::Stopped | Phase::ProbedStopped) => false,
            Some(
                Phase::Starting
                | Phase::Stopping
                | Phase::StopFailed
                | Phase::ProbedRunning
                | Phase::ProbedUnknown
                | Phase::Receiving
                | Phase::HandingOver
                | Phase::HandedOver
                | Phase::MoveFailed,
            )
            | None => epoch_status(target, *target_epoch) != EpochStatus::Released,
        },
        Some(
            Phase::Starting
            | Phase::Running
            | Phase::Stopping
            | Phase::Stopped
            | Phase::Failed
            | Phase::StopFailed
            | Phase::ProbedRunning
            | Phase::ProbedStopped
            | Phase::ProbedUnknown
            | Phase::Receiving
            | Phase::MoveFailed,
        )
        | None => false,
    }
}

/// Returns the phase that the target of a migration reports.
fn target_phase(input: &PlanInput<'_>, service: &Service<'_>) -> Option<Phase> {
    let assignment = &service.assignment?.value;
    let Action::Migrate { target, target_epoch, .. } = &assignment.action else { return None };
    let report = service.answer_of(input, target, *target_epoch, &assignment.action_uid)?;
    Some(report.value.phase)
}

/// Manages the service again: every node is probed, because the service may have been started on any of them.
pub(super) fn resume_management(service: &Service<'_>, update: &mut ServiceUpdate) {
    if service.requested_state() == RequestedState::Ignored {
        update.set_message(Reason::Unmanaged, String::new());
        return;
    }
    update.status.probe_generation = Some(service.resource.value.metadata.generation);
    update.transition_to(ServiceState::Queued, Reason::NotProbed, "Managed again".to_owned());
}
