//! Live migration (FENCING, section 8). Until the cutover, the service is on the source. After the cutover, it is on
//! one of the two nodes.

use super::assign::{ask_about_arrivals, assign, start_on, stop_arrivals_on, stop_on};
use super::policy::{add_node, record_failure};
use super::{AssignmentChange, EpochStatus, Planner, Service, ServiceUpdate, error, recover};
use crate::core::plan_input::PlanInput;
use ha_api_types::event::EventType;
use ha_api_types::id::{Epoch, NodeName, Revision};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment, FailureClass, FenceState, Phase, Proof, ServiceReport};
use ha_api_types::resource::{RequestedState, ServiceState};
use std::collections::BTreeSet;

/// Known state of one side of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SideState {
    /// The node has not reported on this migration.
    NoReport,
    /// Paused: a permit to receive, not running.
    Receiving,
    /// The service may be here or on the other side.
    HandingOver,
    /// Confirmed running here.
    Running,
    /// Confirmed not here.
    Gone,
    /// The service may be here; its state is unknown.
    Unclear,
    /// The epoch is closed with a proof that does not cover later arrivals (R8.17).
    Unproven,
}

/// End of the source of a migration. After this end, no copy arrives at the target (R8.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceEnd {
    /// The driver may be running.
    Open,
    /// The driver never began.
    NeverBegan,
    /// The source reported its end, or a proof released its epoch, at this revision.
    At(Revision),
}

/// Returns the end of the source under this assignment.
pub(super) fn source_end(input: &PlanInput<'_>, service: &Service<'_>, assignment: &Assignment) -> SourceEnd {
    let cluster_view = input.cluster_view;
    let (node, epoch) = (&assignment.node, assignment.epoch);
    let released = match Service::epoch_status(input, node, epoch) {
        EpochStatus::Released => {
            cluster_view.fences.get(node).map(|fence| fence.value.proven_at(fence.mod_revision))
        }
        EpochStatus::Active | EpochStatus::Closing => None,
    };
    let proven = released.map_or(SourceEnd::Open, SourceEnd::At);
    let Some(report) = service.answer_of(input, node, epoch, &assignment.action_uid) else {
        // The hand-over is committed under the source's epoch. Once the source has registered again, its reports no
        // longer contain the hand-over.
        let overwritten =
            cluster_view.service_report(service.name, node).is_some_and(|report| report.value.epoch > epoch);
        let reopened =
            cluster_view.fences.get(node).is_some_and(|fence| fence.value.state == FenceState::Open);
        return if released.is_some() && (overwritten || reopened) { proven } else { SourceEnd::NeverBegan };
    };
    match report.value.phase {
        Phase::MoveFailed if report.value.never_began => SourceEnd::NeverBegan,
        Phase::HandedOver | Phase::MoveFailed | Phase::Stopped | Phase::Failed => {
            SourceEnd::At(report.mod_revision)
        }
        Phase::HandingOver
        | Phase::Starting
        | Phase::Running
        | Phase::Stopping
        | Phase::StopFailed
        | Phase::Receiving
        | Phase::ProbedRunning
        | Phase::ProbedStopped
        | Phase::ProbedUnknown => proven,
    }
}

/// Returns `true` if an arriving service runs on the target without its permit, so that only evidence from after the
/// source's end counts.
fn is_ungated(assignment: &Assignment) -> bool {
    assignment.definition.exclusive && !assignment.definition.driver.waits_for_resume_permit()
}

/// Returns `true` if the copy that the target has received never runs, because the source has not handed over: the copy
/// is paused and the target has no permit to resume it (R8.5), or the source's driver never began (R8.12). The target may
/// be unable to remove this copy.
pub(super) fn is_never_resumed(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    assignment: &Assignment,
) -> bool {
    service.answer(input).is_some_and(|report| {
        report.value.phase == Phase::MoveFailed && (report.value.never_began || !is_ungated(assignment))
    })
}

/// Returns `true` if the proof that closed the target's epoch covers the migrated service (R8.16, R8.17).
pub(super) fn proof_covers_migration(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    assignment: &Assignment,
    target: &NodeName,
) -> bool {
    let end = source_end(input, service, assignment);
    let end = match end {
        SourceEnd::Open => return false,
        SourceEnd::NeverBegan => return true,
        SourceEnd::At(_) if !is_ungated(assignment) => return true,
        SourceEnd::At(end) => end,
    };
    proves_empty_after(input, service, target, end)
}

/// Returns `true` if the proof that closed a node's last epoch covers every copy that arrived until this revision
/// (R8.17).
fn proves_empty_after(input: &PlanInput<'_>, service: &Service<'_>, node: &NodeName, end: Revision) -> bool {
    let cluster_view = input.cluster_view;
    let Some(fence) = cluster_view.fences.get(node) else { return false };
    let is_later = fence.value.proven_at(fence.mod_revision) > end;
    let heard_since = || cluster_view.alive.get(node).is_some_and(|alive| alive.mod_revision > end);
    // A node that is armed without a permit may have a daemon without a deadline, which does not reset the node.
    let had_permit = || {
        cluster_view.service_report(service.name, node).is_some_and(|report| {
            report.value.epoch + 1 == fence.value.epoch && report.value.phase.is_permitted()
        })
    };
    let ends_by_silence = matches!(fence.value.proof, Some(Proof::Silence { .. }));
    fence.value.state == FenceState::Fenced
        && (fence.value.is_confirmed_off_after(end, fence.mod_revision)
            || ends_by_silence && is_later && heard_since() && had_permit())
}

/// Returns the node where a copy may have arrived although the epoch of its assignment is closed, with the end of the
/// migration's source (R8.17).
pub(super) fn unproven_arrival<'a>(
    input: &PlanInput<'_>,
    service: &Service<'a>,
) -> Option<(&'a NodeName, Revision)> {
    let assignment = &service.assignment?.value;
    let (node, epoch, end) = match &assignment.action {
        Action::Migrate { target, target_epoch, .. } if is_ungated(assignment) => {
            let SourceEnd::At(end) = source_end(input, service, assignment) else { return None };
            (target, *target_epoch, end)
        }
        Action::Migrate { .. } => return None,
        Action::Stop { .. } | Action::Start | Action::Restart | Action::DoNothing => {
            let (node, epoch) = (&assignment.node, assignment.epoch);
            (node, epoch, unanswered_arrival(input, service, node, epoch)?)
        }
    };
    let is_open = Service::epoch_status(input, node, epoch) == EpochStatus::Released
        && !proves_empty_after(input, service, node, end);
    is_open.then_some((node, end))
}

/// Returns the nodes whose epoch is closed with a proof that is older than a possible arrival (R8.17). Only a later proof
/// or an answer of the node shows that no copy runs there.
pub(in crate::core) fn nodes_with_unproven_arrival<'a>(input: &PlanInput<'a>) -> BTreeSet<&'a NodeName> {
    let cluster_view = input.cluster_view;
    let concerned = cluster_view.assignments.iter().filter(|(_, assignment)| {
        matches!(assignment.value.action, Action::Migrate { .. })
            || assignment.value.source_end_revision.is_some()
    });
    concerned
        .filter_map(|(name, assignment)| {
            let status = cluster_view.resource_statuses.get(name);
            let service = Service {
                name,
                resource: cluster_view.resources.get(name)?,
                status,
                assignment: Some(assignment),
                tombstone: None,
                operation: None,
            };
            let is_ignored = status.is_some_and(|status| status.value.state == ServiceState::Ignored);
            let (node, _) = unproven_arrival(input, &service).filter(|_| !is_ignored)?;
            let is_closed =
                cluster_view.fences.get(node).is_some_and(|fence| fence.value.state != FenceState::Open);
            is_closed.then_some(node)
        })
        .collect()
}

/// Returns the revision up to which a copy may have arrived on this node. `None` if the node was not asked about an
/// arrival, or has answered.
pub(super) fn unanswered_arrival(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    node: &NodeName,
    epoch: Epoch,
) -> Option<Revision> {
    let assignment = &service.assignment?.value;
    // Any report under the assignment is later than it, and so is any registration of a later process or boot.
    let has_answered = service.answer(input).is_some();
    let is_unanswered = assignment.node == *node && assignment.epoch == epoch && !has_answered;
    assignment.source_end_revision.filter(|_| is_unanswered)
}

/// Holds a service whose node was ordered to report an arrival, and whose epoch was closed without an answer. The
/// closing proof may be older than the arrival (R8.17). Repeats the order under the node's current epoch. Returns
/// `true` if the service is held.
pub(super) fn hold_for_arrival(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
) -> bool {
    let input = planner.input;
    let was_asked =
        service.assignment.is_some_and(|assignment| assignment.value.source_end_revision.is_some());
    if !was_asked
        || update.assignment_change != AssignmentChange::Keep
        || update.status.state == ServiceState::Ignored
    {
        return false;
    }
    let Some((node, end)) = unproven_arrival(&input, service) else { return false };
    let is_open =
        input.cluster_view.fences.get(node).is_some_and(|fence| fence.value.state == FenceState::Open);
    if is_open {
        stop_arrivals_on(planner, service, update, node, end);
    } else {
        update.add_wait(Reason::Fencing, may_have_arrived_message(planner, node));
    }
    true
}

/// Returns the message about a service that may run on a fenced node: a fence device must confirm again that the node is
/// off, or an operator must act.
fn may_have_arrived_message(planner: &Planner<'_>, node: &NodeName) -> String {
    let has_device = planner.nodes.get(node).is_some_and(|node| node.has_device);
    let is_disarmed = planner.input.cluster_view.settings().disarmed.is_some();
    let next = if has_device && !is_disarmed {
        "waiting for its fence device to confirm again that it is off. If the device fails, start the node"
    } else {
        "start the node"
    };
    format!(
        "Service may have arrived on node {node} after that node was fenced: {next}, or power it off and run \"hactl node \
         confirm-fenced {node}\""
    )
}

fn side_state(epoch_status: EpochStatus, phase: Option<Phase>) -> SideState {
    if epoch_status == EpochStatus::Released {
        return SideState::Gone;
    }
    match phase {
        None => SideState::NoReport,
        Some(Phase::Receiving) => SideState::Receiving,
        Some(Phase::HandingOver) => SideState::HandingOver,
        Some(Phase::Running | Phase::MoveFailed) => SideState::Running,
        Some(Phase::Stopped | Phase::Failed | Phase::HandedOver | Phase::ProbedStopped) => SideState::Gone,
        Some(
            Phase::Starting
            | Phase::Stopping
            | Phase::StopFailed
            | Phase::ProbedRunning
            | Phase::ProbedUnknown,
        ) => SideState::Unclear,
    }
}

/// Plans a service in live migration.
pub(super) fn migrate(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let input = planner.input;
    let Some(assignment) = service.assignment.map(|assignment| &assignment.value) else {
        update.transition_to(
            ServiceState::Queued,
            Reason::NotProbed,
            "Record of the assigned node is missing, asking every node whether the service runs there"
                .to_owned(),
        );
        return;
    };
    let Action::Migrate { target, target_epoch, .. } = &assignment.action else {
        update.status.target = None;
        recover::resume_from_assignment(service, update, assignment, service.phase(&input));
        return;
    };
    let source = assignment.node.clone();
    let source_epoch_status = Service::epoch_status(&input, &source, assignment.epoch);
    let target_epoch_status = Service::epoch_status(&input, target, *target_epoch);
    let source_report = service.answer(&input);
    let target_report = service.answer_of(&input, target, *target_epoch, &assignment.action_uid);
    let end = source_end(&input, service, assignment);
    let source_side = side_state(source_epoch_status, source_report.map(|report| report.value.phase));
    let target_phase = target_report.map(|report| report.value.phase);
    let target_side = match side_state(target_epoch_status, target_phase) {
        SideState::Gone
            if target_epoch_status == EpochStatus::Released
                && !proof_covers_migration(&input, service, assignment, target) =>
        {
            SideState::Unproven
        }
        side @ (SideState::NoReport
        | SideState::Receiving
        | SideState::HandingOver
        | SideState::Running
        | SideState::Gone
        | SideState::Unclear
        | SideState::Unproven) => side,
    };
    if source_epoch_status == EpochStatus::Closing && source_side != SideState::Gone {
        // Only a proof of the source shows whether it has handed over.
        if update.status.state == ServiceState::Fence {
            update.add_wait(Reason::Fencing, format!("Waiting for node {source} to be fenced"));
        } else {
            let message = format!("Node {source} failed during the move to {target} and is being fenced");
            update.transition_to(ServiceState::Fence, Reason::Fencing, message);
        }
        return;
    }
    // After a failure at the source, the target only reports that no copy arrived. A waiting target has no report.
    let failure_text = source_report
        .filter(|report| report.value.phase == Phase::MoveFailed && !report.value.message.is_empty())
        .or(target_report.filter(|report| report.value.phase != Phase::Receiving))
        .or(source_report)
        .map(|report| report.value.message.clone())
        .filter(|message| !message.is_empty())
        .unwrap_or_else(|| Reason::MoveFailed.sentence().to_owned());
    if source_side == SideState::Gone
        && matches!(target_side, SideState::Receiving | SideState::Unclear)
        && target_epoch_status == EpochStatus::Active
        && target_phase != Some(Phase::StopFailed)
        && matches!(service.requested_state(), RequestedState::Stopped | RequestedState::Disabled)
    {
        // The stop does not wait for the end of the move: the driver of the target may not respond.
        stop_on_target(planner, service, update, target, end, is_ungated(assignment));
        return;
    }
    let has_handed_over = source_report.is_some_and(|report| report.value.phase == Phase::HandedOver);
    match (source_side, target_side) {
        (SideState::Running, SideState::Running) => {
            let message = format!("Running on both {source} and {target} after a migration");
            error::enter(planner, service, update, Reason::MultipleActive, message, false);
        }
        (SideState::Gone, SideState::Running) => {
            complete_migration(planner, service, update, target, target_epoch_status);
        }
        // The source has not handed over, and the target cannot continue or is lost: the service stays on the source.
        // The new assignment ends the right of the source to hand over.
        (SideState::Running | SideState::NoReport, SideState::Gone | SideState::Unproven) => {
            if target_report.and_then(|report| report.value.failure) == Some(FailureClass::NeverHere) {
                add_node(&mut update.status.incompatible_nodes, target);
            }
            cancel_migration(planner, service, update, &source, source_epoch_status, &failure_text);
        }
        // R8.12: the target has no part of the service.
        (SideState::Running, SideState::NoReport | SideState::Receiving) if end == SourceEnd::NeverBegan => {
            cancel_migration(planner, service, update, &source, source_epoch_status, &failure_text);
        }
        (SideState::Running, SideState::NoReport) => {
            if source_report.is_some_and(|report| report.value.phase == Phase::MoveFailed) {
                cancel_migration(planner, service, update, &source, source_epoch_status, &failure_text);
            } else {
                let message = format!("Node {target} is preparing to receive the service");
                planner.await_action(update, target, Reason::Migrating, message);
            }
        }
        (SideState::NoReport, SideState::NoReport | SideState::Receiving)
            if target_epoch_status == EpochStatus::Closing =>
        {
            cancel_migration(
                planner,
                service,
                update,
                &source,
                source_epoch_status,
                &format!("node {target} failed"),
            );
        }
        (SideState::Running, SideState::Receiving) => {
            if source_epoch_status == EpochStatus::Active && target_epoch_status == EpochStatus::Closing {
                cancel_migration(planner, service, update, &source, source_epoch_status, &failure_text);
            } else {
                let message = format!("Node {target} is cleaning up the received copy");
                planner.await_action(update, target, Reason::Migrating, message);
            }
        }
        // R8.17: the target's reports may be older than the arrival of the service.
        (SideState::Gone, SideState::Gone)
            if target_epoch_status == EpochStatus::Active
                && matches!(end, SourceEnd::At(_))
                && is_ungated(assignment) =>
        {
            let report = target_report.map(|report| &report.value);
            stop_possible_arrival(planner, service, update, target, end, report);
        }
        (SideState::Gone, SideState::Gone) => {
            let report = target_report.map(|report| &report.value);
            handle_running_nowhere(service, update, &source, target, report);
        }
        (SideState::Gone, SideState::Unproven) => {
            let fence = input.cluster_view.fences.get(target);
            if fence.is_some_and(|fence| fence.value.state == FenceState::Open) {
                stop_possible_arrival(planner, service, update, target, end, None);
            } else {
                update.add_wait(Reason::Fencing, may_have_arrived_message(planner, target));
            }
        }
        // The source's epoch is released by a proof, without a hand-over; the new assignment ends the target's right to
        // receive.
        (SideState::Gone, SideState::NoReport) if source_epoch_status == EpochStatus::Released => {
            update.transition_to(
                ServiceState::Recovery,
                Reason::Recovering,
                format!("Node {source} failed during the move"),
            );
        }
        (SideState::Gone, SideState::NoReport) if target_epoch_status == EpochStatus::Active => {
            handle_running_nowhere(service, update, &source, target, None);
        }
        // The source is proven gone, so only the target can run the service. When ordered to start, the target keeps an
        // active copy and removes a paused copy.
        (SideState::Gone, SideState::Receiving)
            if source_epoch_status == EpochStatus::Released
                && target_epoch_status == EpochStatus::Active
                && !has_handed_over =>
        {
            let target = target.clone();
            start_on(planner, service, update, &target, Reason::Recovered);
            if let SourceEnd::At(end) = end
                && is_ungated(assignment)
            {
                ask_about_arrivals(update, end);
            }
        }
        (SideState::Gone, SideState::Receiving) => {
            let message = format!("Node {target} is taking over the service");
            planner.await_action(update, target, Reason::Migrating, message);
        }
        (SideState::Unclear, _) => {
            if let Some(Phase::StopFailed) = source_report.map(|report| report.value.phase) {
                let message = format!("Stop failed on {source} during the move: {failure_text}");
                error::enter(planner, service, update, Reason::StopFailed, message, false);
            } else {
                let message = format!("Waiting for node {source} to finish its current action");
                planner.await_action(update, &source, Reason::Migrating, message);
            }
        }
        (SideState::HandingOver, _) => {
            let progress = source_report.map(|report| report.value.message.as_str()).unwrap_or_default();
            let progress = if progress.is_empty() { String::new() } else { format!(": {progress}") };
            let message = format!("Live migration from {source} to {target} in progress{progress}");
            planner.await_action(update, &source, Reason::Migrating, message);
        }
        (SideState::Gone, SideState::Unclear) if target_phase == Some(Phase::StopFailed) => {
            enter_error_on_target(planner, service, update, target, &failure_text);
        }
        // The service does not wait for the removal.
        (SideState::Running, SideState::Unclear)
            if target_phase == Some(Phase::StopFailed) && is_never_resumed(&input, service, assignment) =>
        {
            cancel_migration(planner, service, update, &source, source_epoch_status, &failure_text);
        }
        (_, SideState::Unclear) if target_phase == Some(Phase::StopFailed) => {
            // A clean shutdown of the target waits for the stop that fails.
            let remedy = if planner.nodes.get(target).is_some_and(|node| node.has_device) {
                format!("run \"hactl node fence {target}\"")
            } else {
                format!("power {target} off and on")
            };
            let message = format!(
                "Cannot remove the received copy from {target}, retrying ({failure_text}). To end the move, {remedy}"
            );
            update.add_wait(Reason::StopFailed, message);
        }
        (_, SideState::Unclear) => {
            let message = format!("Waiting for node {target} to finish its current action");
            planner.await_action(update, target, Reason::Migrating, message);
        }
        (
            SideState::NoReport,
            SideState::NoReport | SideState::Receiving | SideState::Running | SideState::HandingOver,
        )
        | (SideState::Running | SideState::Gone, SideState::HandingOver)
        | (SideState::Gone, SideState::NoReport)
        | (SideState::Receiving | SideState::Unproven, _) => {
            // No order is needed for a node whose copy has ended.
            let next = if source_side == SideState::Gone { target } else { &source };
            planner.await_action(
                update,
                next,
                Reason::Migrating,
                format!("Migrating from {source} to {target}"),
            );
        }
    }
}

/// Completes a migration: the service runs on the target and is confirmed not to run on the source.
fn complete_migration(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    target: &NodeName,
    epoch_status: EpochStatus,
) {
    if epoch_status != EpochStatus::Active {
        update.add_wait(Reason::Fencing, format!("Node {target} failed after it took over the service"));
        return;
    }
    if assign(planner, service, update, target, Action::Start) {
        update.status.target = None;
        update.status.move_failures = 0;
        update.clear_failures();
        if update.status.maintenance_node.as_ref() == Some(target) {
            update.status.maintenance_node = None;
        }
        update.transition_to(ServiceState::Started, Reason::Moved, format!("Migrated to {target}"));
    }
}

/// Cancels a migration: the service stays on the source.
fn cancel_migration(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    source: &NodeName,
    epoch_status: EpochStatus,
    cause: &str,
) {
    if epoch_status != EpochStatus::Active {
        recover::handle_closed_epoch(planner, service, update, epoch_status);
        return;
    }
    if start_on(planner, service, update, source, Reason::MoveFailed) {
        update.events.clear();
        update.status.move_failures = update.status.move_failures.saturating_add(1);
        update.transition_to(
            ServiceState::Started,
            Reason::MoveFailed,
            format!("Move failed, staying on {source}: {cause}"),
        );
        update.emit_event(
            EventType::Warning,
            Reason::MoveFailed,
            format!("Move failed, staying on {source}: {cause}"),
        );
    }
}

/// Enters Error: the service has ended on the source, and the target could not stop the copy that it received. The
/// service counts as running on the target, whose agent is ordered to take no action on it.
fn enter_error_on_target(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    target: &NodeName,
    failure_text: &str,
) {
    if !assign(planner, service, update, target, Action::DoNothing) {
        return;
    }
    update.status.target = None;
    let message = format!("Stop failed on {target} after the move: {failure_text}");
    update.transition_to(ServiceState::Error, Reason::StopFailed, message);
    update.status.stop_confirmed = Some(false);
}

/// Orders the target to stop a service that its source has handed over.
fn stop_on_target(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    target: &NodeName,
    end: SourceEnd,
    is_ungated: bool,
) {
    let is_assigned = match end {
        SourceEnd::At(end) if is_ungated => stop_arrivals_on(planner, service, update, target, end),
        SourceEnd::At(_) | SourceEnd::Open | SourceEnd::NeverBegan => {
            stop_on(planner, service, update, target)
        }
    };
    if is_assigned {
        update.status.target = None;
        update.transition_to(ServiceState::Stopping, Reason::Stopping, format!("Stopping on {target}"));
    }
}

/// Orders the target to stop any copy that has arrived there, because its earlier reports are older than the source's
/// end. If the target fails before it has answered, only a later proof counts, see [`hold_for_arrival`].
fn stop_possible_arrival(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    target: &NodeName,
    end: SourceEnd,
    report: Option<&ServiceReport>,
) {
    let is_assigned = match end {
        SourceEnd::At(end) => stop_arrivals_on(planner, service, update, target, end),
        SourceEnd::Open | SourceEnd::NeverBegan => stop_on(planner, service, update, target),
    };
    if !is_assigned {
        return;
    }
    update.status.target = None;
    if let Some(report) = report.filter(|report| report.phase == Phase::Failed) {
        record_failure(update, target, report.failure.unwrap_or_default());
        update.status.move_failures = update.status.move_failures.saturating_add(1);
    }
    let message = format!("Node {target} is cleaning up any received copy");
    update.transition_to(ServiceState::Relocate, Reason::MoveFailed, message);
}

/// Handles a service that is confirmed on neither side. A service that arrived and then failed counts as a failed
/// start on the target.
fn handle_running_nowhere(
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    source: &NodeName,
    target: &NodeName,
    report: Option<&ServiceReport>,
) {
    update.status.target = None;
    let mut message = format!("Stopped during the move from {source} to {target}");
    if super::start::mark_stopped_if_unrequested(service, update) {
        return;
    }
    if let Some(report) = report.filter(|report| report.phase == Phase::Failed) {
        record_failure(update, target, report.failure.unwrap_or_default());
        update.status.move_failures = update.status.move_failures.saturating_add(1);
        message = format!("Failed on {target} after the move from {source}: {}", report.message);
    }
    update.transition_to(ServiceState::RequestStart, Reason::MoveFailed, message);
}
