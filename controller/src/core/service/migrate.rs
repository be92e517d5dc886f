//! Live migration (FENCING, section 8). Until the cutover the service is on the source; afterwards, on either node.

use super::assign::{assign, await_answer, start_on, stop_arrivals_on, stop_on};
use super::policy::{remember, remember_failure};
use super::{Assign, Draft, Planner, Service, Standing, error, recover};
use crate::core::situation::Situation;
use ha_api_types::event::EventType;
use ha_api_types::id::{Epoch, NodeName, Revision};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment, FailureClass, FenceState, Phase, Proof, ServiceReport};
use ha_api_types::resource::ServiceState;

/// Known state of one side of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The node has not reported on this migration.
    Silent,
    /// Paused: a permit to receive, not running.
    Receiving,
    /// The service may be here or on the other side.
    HandingOver,
    /// Confirmed running here.
    Running,
    /// Confirmed not here.
    Gone,
    /// The service may be here; its state is unknown.
    Doubtful,
    /// The epoch is closed with a proof that does not cover later arrivals (R8.17).
    Unproven,
}

/// Whether the source of a migration has ended. After its end, nothing more arrives at the target (R8.13).
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
pub(super) fn source_end(
    situation: &Situation<'_>,
    service: &Service<'_>,
    assignment: &Assignment,
) -> SourceEnd {
    let world = situation.world;
    let (node, epoch) = (&assignment.node, assignment.epoch);
    let released = match Service::standing(situation, node, epoch) {
        Standing::Released => world.fences.get(node).map(|fence| fence.modified),
        Standing::InForce | Standing::Closing => None,
    };
    let proven = released.map_or(SourceEnd::Open, SourceEnd::At);
    let Some(report) = service.answer_of(situation, node, epoch, &assignment.action_uid) else {
        // The hand-over is committed under the source's epoch. Once the source has registered again, its reports no
        // longer contain the hand-over.
        let overwritten =
            world.service_report(service.name, node).is_some_and(|report| report.value.epoch > epoch);
        let reopened = world.fences.get(node).is_some_and(|fence| fence.value.state == FenceState::Open);
        return if released.is_some() && (overwritten || reopened) { proven } else { SourceEnd::NeverBegan };
    };
    match report.value.phase {
        Phase::MoveFailed if report.value.never_began => SourceEnd::NeverBegan,
        Phase::HandedOver | Phase::MoveFailed | Phase::Stopped | Phase::Failed => {
            SourceEnd::At(report.modified)
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
    assignment.definition.exclusive && !assignment.definition.driver.is_gated()
}

/// Returns `true` if the proof that closed the target's epoch covers the migrated service (R8.16, R8.17).
pub(super) fn release_counts(
    situation: &Situation<'_>,
    service: &Service<'_>,
    assignment: &Assignment,
    target: &NodeName,
) -> bool {
    let end = source_end(situation, service, assignment);
    let end = match end {
        SourceEnd::Open => return false,
        SourceEnd::NeverBegan => return true,
        SourceEnd::At(_) if !is_ungated(assignment) => return true,
        SourceEnd::At(end) => end,
    };
    proves_empty_after(situation, service, target, end)
}

/// Returns `true` if the proof that closed a node's last epoch covers everything that arrived until this revision
/// (R8.17).
fn proves_empty_after(
    situation: &Situation<'_>,
    service: &Service<'_>,
    node: &NodeName,
    end: Revision,
) -> bool {
    let world = situation.world;
    let Some(fence) = world.fences.get(node) else { return false };
    let is_later = fence.value.state == FenceState::Fenced && fence.modified > end;
    let heard_since = || world.alive.get(node).is_some_and(|alive| alive.modified > end);
    // A node that is armed without a permit may have a daemon without a deadline, which does not reset the node.
    let had_permit = || {
        world.service_report(service.name, node).is_some_and(|report| {
            report.value.epoch + 1 == fence.value.epoch && report.value.phase.is_permitted()
        })
    };
    is_later
        && match &fence.value.proof {
            Some(Proof::Device { .. } | Proof::Operator { .. }) => true,
            Some(Proof::Silence { .. }) => heard_since() && had_permit(),
            Some(
                Proof::NewBoot { .. } | Proof::CleanLeave { .. } | Proof::Reregistered | Proof::NothingActive,
            )
            | None => false,
        }
}

/// Returns the node where a copy may have arrived although the epoch of its assignment is closed, with the end of the
/// migration's source (R8.17).
pub(super) fn unproven_arrival<'a>(
    situation: &Situation<'_>,
    service: &Service<'a>,
) -> Option<(&'a NodeName, Revision)> {
    let assignment = &service.assignment?.value;
    let (node, epoch, end) = match &assignment.action {
        Action::Migrate { target, target_epoch, .. } if is_ungated(assignment) => {
            let SourceEnd::At(end) = source_end(situation, service, assignment) else { return None };
            (target, *target_epoch, end)
        }
        Action::Migrate { .. } => return None,
        Action::Stop { .. } | Action::Start | Action::Restart | Action::Leave => {
            let (node, epoch) = (&assignment.node, assignment.epoch);
            (node, epoch, unanswered_arrival(situation, service, node, epoch)?)
        }
    };
    let is_open = Service::standing(situation, node, epoch) == Standing::Released
        && !proves_empty_after(situation, service, node, end);
    is_open.then_some((node, end))
}

/// Returns the revision up to which a copy may have arrived on this node. `None` if the node was not asked about an
/// arrival, or has answered.
pub(super) fn unanswered_arrival(
    situation: &Situation<'_>,
    service: &Service<'_>,
    node: &NodeName,
    epoch: Epoch,
) -> Option<Revision> {
    let assignment = &service.assignment?.value;
    // Any report under the assignment is later than it, and so is any registration of a later process or boot.
    let has_answered = service.answer(situation).is_some();
    let is_asked = assignment.node == *node && assignment.epoch == epoch && !has_answered;
    assignment.arrivals_until.filter(|_| is_asked)
}

/// Holds a service whose node was asked about an arrival and has lost its epoch without an answer. The closing proof
/// may be older than the arrival (R8.17). Asks again under the node's current epoch. Returns `true` if the service is
/// held.
pub(super) fn hold_for_arrival(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) -> bool {
    let situation = planner.situation;
    let was_asked = service.assignment.is_some_and(|assignment| assignment.value.arrivals_until.is_some());
    if !was_asked || draft.assign != Assign::Keep || draft.status.state == ServiceState::Ignored {
        return false;
    }
    let Some((node, end)) = unproven_arrival(&situation, service) else { return false };
    let is_open = situation.world.fences.get(node).is_some_and(|fence| fence.value.state == FenceState::Open);
    if is_open {
        stop_arrivals_on(planner, service, draft, node, end);
    } else {
        draft.wait(Reason::Fencing, may_have_arrived(node));
    }
    true
}

fn may_have_arrived(node: &NodeName) -> String {
    format!(
        "Service may have arrived on node {node} after that node was fenced: start node {node}, or power it off and run \
         \"hactl node confirm-fenced {node}\""
    )
}

fn side(standing: Standing, phase: Option<Phase>) -> Side {
    if standing == Standing::Released {
        return Side::Gone;
    }
    match phase {
        None => Side::Silent,
        Some(Phase::Receiving) => Side::Receiving,
        Some(Phase::HandingOver) => Side::HandingOver,
        Some(Phase::Running | Phase::MoveFailed) => Side::Running,
        Some(Phase::Stopped | Phase::Failed | Phase::HandedOver | Phase::ProbedStopped) => Side::Gone,
        Some(
            Phase::Starting
            | Phase::Stopping
            | Phase::StopFailed
            | Phase::ProbedRunning
            | Phase::ProbedUnknown,
        ) => Side::Doubtful,
    }
}

/// Plans a service in live migration.
pub(super) fn migrate(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let situation = planner.situation;
    let Some(assignment) = service.assignment.map(|assignment| &assignment.value) else {
        draft.go(
            ServiceState::Queued,
            Reason::NotProbed,
            "Record of the assigned node is missing, asking every node whether the service runs there"
                .to_owned(),
        );
        return;
    };
    let Action::Migrate { target, target_epoch, .. } = &assignment.action else {
        draft.status.target = None;
        recover::settle(service, draft, assignment, service.phase(&situation));
        return;
    };
    let source = assignment.node.clone();
    let source_standing = Service::standing(&situation, &source, assignment.epoch);
    let target_standing = Service::standing(&situation, target, *target_epoch);
    let source_report = service.answer(&situation);
    let target_report = service.answer_of(&situation, target, *target_epoch, &assignment.action_uid);
    let end = source_end(&situation, service, assignment);
    let source_side = side(source_standing, source_report.map(|report| report.value.phase));
    let target_phase = target_report.map(|report| report.value.phase);
    let target_side = match side(target_standing, target_phase) {
        Side::Gone
            if target_standing == Standing::Released
                && !release_counts(&situation, service, assignment, target) =>
        {
            Side::Unproven
        }
        side @ (Side::Silent
        | Side::Receiving
        | Side::HandingOver
        | Side::Running
        | Side::Gone
        | Side::Doubtful
        | Side::Unproven) => side,
    };
    if source_standing == Standing::Closing && source_side != Side::Gone {
        // Only a proof of the source shows whether it has handed over.
        if draft.status.state == ServiceState::Fence {
            draft.wait(Reason::Fencing, format!("Waiting for node {source} to be fenced"));
        } else {
            let message = format!("Node {source} failed during the move to {target} and is being fenced");
            draft.go(ServiceState::Fence, Reason::Fencing, message);
        }
        return;
    }
    // After a failure at the source, the target only reports that nothing arrived. A waiting target has nothing to
    // report.
    let said = source_report
        .filter(|report| report.value.phase == Phase::MoveFailed && !report.value.message.is_empty())
        .or(target_report.filter(|report| report.value.phase != Phase::Receiving))
        .or(source_report)
        .map(|report| report.value.message.clone())
        .filter(|message| !message.is_empty())
        .unwrap_or_else(|| Reason::MoveFailed.sentence().to_owned());
    let has_handed_over = source_report.is_some_and(|report| report.value.phase == Phase::HandedOver);
    match (source_side, target_side) {
        (Side::Running, Side::Running) => {
            let message = format!("Running on both {source} and {target} after a migration");
            error::enter(planner, service, draft, Reason::MultipleActive, message, false);
        }
        (Side::Gone, Side::Running) => arrive(planner, service, draft, target, target_standing),
        // The source has not handed over, and the target cannot continue or is lost: the service stays. The new
        // assignment ends the source's right to hand over.
        (Side::Running | Side::Silent, Side::Gone | Side::Unproven) => {
            if target_report.and_then(|report| report.value.failure) == Some(FailureClass::NeverHere) {
                remember(&mut draft.status.incompatible_nodes, target);
            }
            stay(planner, service, draft, &source, source_standing, &said);
        }
        // R8.12: the target has nothing of the service.
        (Side::Running, Side::Silent | Side::Receiving) if end == SourceEnd::NeverBegan => {
            stay(planner, service, draft, &source, source_standing, &said);
        }
        (Side::Running, Side::Silent) => {
            if source_report.is_some_and(|report| report.value.phase == Phase::MoveFailed) {
                stay(planner, service, draft, &source, source_standing, &said);
            } else {
                let message = format!("Node {target} is preparing to receive the service");
                planner.await_action(draft, target, Reason::Migrating, message);
            }
        }
        (Side::Silent, Side::Silent | Side::Receiving) if target_standing == Standing::Closing => {
            stay(planner, service, draft, &source, source_standing, &format!("node {target} failed"));
        }
        (Side::Running, Side::Receiving) => {
            if source_standing == Standing::InForce && target_standing == Standing::Closing {
                stay(planner, service, draft, &source, source_standing, &said);
            } else {
                let message = format!("Node {target} is cleaning up the received copy");
                planner.await_action(draft, target, Reason::Migrating, message);
            }
        }
        // R8.17: the target's reports may be older than the arrival of the service.
        (Side::Gone, Side::Gone)
            if target_standing == Standing::InForce
                && matches!(end, SourceEnd::At(_))
                && is_ungated(assignment) =>
        {
            let report = target_report.map(|report| &report.value);
            ask_again(planner, service, draft, target, end, report);
        }
        (Side::Gone, Side::Gone) => {
            let report = target_report.map(|report| &report.value);
            nowhere(service, draft, &source, target, report);
        }
        (Side::Gone, Side::Unproven) => {
            let fence = situation.world.fences.get(target);
            if fence.is_some_and(|fence| fence.value.state == FenceState::Open) {
                ask_again(planner, service, draft, target, end, None);
            } else {
                draft.wait(Reason::Fencing, may_have_arrived(target));
            }
        }
        // The source's epoch is released by a proof, without a hand-over; the new assignment ends the target's right to
        // receive.
        (Side::Gone, Side::Silent) if source_standing == Standing::Released => {
            draft.go(
                ServiceState::Recovery,
                Reason::Recovering,
                format!("Node {source} failed during the move"),
            );
        }
        (Side::Gone, Side::Silent) if target_standing == Standing::InForce => {
            nowhere(service, draft, &source, target, None);
        }
        // The source is proven gone, so only the target is left. When ordered to start, it keeps an active copy and
        // removes a paused one.
        (Side::Gone, Side::Receiving)
            if source_standing == Standing::Released
                && target_standing == Standing::InForce
                && !has_handed_over =>
        {
            let target = target.clone();
            start_on(planner, service, draft, &target, Reason::Recovered);
            if let SourceEnd::At(end) = end
                && is_ungated(assignment)
            {
                await_answer(draft, end);
            }
        }
        (Side::Gone, Side::Receiving) => {
            let message = format!("Node {target} is taking over the service");
            planner.await_action(draft, target, Reason::Migrating, message);
        }
        (Side::Doubtful, _) => match source_report.map(|report| report.value.phase) {
            Some(Phase::StopFailed) => {
                let message = format!("Stop failed on {source} during the move: {said}");
                error::enter(planner, service, draft, Reason::StopFailed, message, false);
            }
            _ => {
                let message = format!("Waiting for node {source} to finish its current action");
                planner.await_action(draft, &source, Reason::Migrating, message);
            }
        },
        (Side::HandingOver, _) => {
            let far = source_report.map(|report| report.value.message.as_str()).unwrap_or_default();
            let far = if far.is_empty() { String::new() } else { format!(": {far}") };
            let message = format!("Live migration from {source} to {target} in progress{far}");
            planner.await_action(draft, &source, Reason::Migrating, message);
        }
        (Side::Gone, Side::Doubtful) if target_phase == Some(Phase::StopFailed) => {
            enter_error_on_target(planner, service, draft, target, &said);
        }
        (_, Side::Doubtful) if target_phase == Some(Phase::StopFailed) => {
            let message = format!("Cleanup of the received copy failed on {target}, retrying: {said}");
            draft.wait(Reason::StopFailed, message);
        }
        (_, Side::Doubtful) => {
            let message = format!("Waiting for node {target} to finish its current action");
            planner.await_action(draft, target, Reason::Migrating, message);
        }
        (Side::Silent, Side::Silent | Side::Receiving | Side::Running | Side::HandingOver)
        | (Side::Running | Side::Gone, Side::HandingOver)
        | (Side::Gone, Side::Silent)
        | (Side::Receiving | Side::Unproven, _) => {
            // A side that is gone has nothing more to do.
            let next = if source_side == Side::Gone { target } else { &source };
            planner.await_action(
                draft,
                next,
                Reason::Migrating,
                format!("Migrating from {source} to {target}"),
            );
        }
    }
}

/// Completes a migration: the service runs on the target and is confirmed gone from the source.
fn arrive(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    target: &NodeName,
    standing: Standing,
) {
    if standing != Standing::InForce {
        draft.wait(Reason::Fencing, format!("Node {target} failed after it took over the service"));
        return;
    }
    if assign(planner, service, draft, target, Action::Start) {
        draft.status.target = None;
        draft.status.move_failures = 0;
        draft.clear_failures();
        if draft.status.maintenance_node.as_ref() == Some(target) {
            draft.status.maintenance_node = None;
        }
        draft.go(ServiceState::Started, Reason::Moved, format!("Migrated to {target}"));
    }
}

/// Cancels a migration: the service stays on the source.
fn stay(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    source: &NodeName,
    standing: Standing,
    why: &str,
) {
    if standing != Standing::InForce {
        recover::lost(planner, service, draft, standing);
        return;
    }
    if start_on(planner, service, draft, source, Reason::MoveFailed) {
        draft.told.clear();
        draft.status.move_failures = draft.status.move_failures.saturating_add(1);
        draft.go(
            ServiceState::Started,
            Reason::MoveFailed,
            format!("Move failed, staying on {source}: {why}"),
        );
        draft.tell(
            EventType::Warning,
            Reason::MoveFailed,
            format!("Move failed, staying on {source}: {why}"),
        );
    }
}

/// Enters Error: the service is gone from the source, and the target could not stop the copy that it received. The
/// service counts as running on the target, whose agent is ordered to take no action on it.
fn enter_error_on_target(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    target: &NodeName,
    said: &str,
) {
    if !assign(planner, service, draft, target, Action::Leave) {
        return;
    }
    draft.status.target = None;
    let message = format!("Stop failed on {target} after the move: {said}");
    draft.go(ServiceState::Error, Reason::StopFailed, message);
    draft.status.stop_confirmed = Some(false);
}

/// Orders the target to stop any copy that has arrived there, because its earlier reports are older than the source's
/// end. If the target fails before it has answered, only a later proof counts, see [`hold_for_arrival`].
fn ask_again(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    target: &NodeName,
    end: SourceEnd,
    report: Option<&ServiceReport>,
) {
    let is_assigned = match end {
        SourceEnd::At(end) => stop_arrivals_on(planner, service, draft, target, end),
        SourceEnd::Open | SourceEnd::NeverBegan => stop_on(planner, service, draft, target),
    };
    if !is_assigned {
        return;
    }
    draft.status.target = None;
    if let Some(report) = report.filter(|report| report.phase == Phase::Failed) {
        remember_failure(draft, target, report.failure.unwrap_or_default());
        draft.status.move_failures = draft.status.move_failures.saturating_add(1);
    }
    let message = format!("Node {target} is cleaning up any received copy");
    draft.go(ServiceState::Relocate, Reason::MoveFailed, message);
}

/// Handles a service that is confirmed on neither side. A service that arrived and then failed counts as a failed
/// start on the target.
fn nowhere(
    service: &Service<'_>,
    draft: &mut Draft,
    source: &NodeName,
    target: &NodeName,
    report: Option<&ServiceReport>,
) {
    draft.status.target = None;
    let mut message = format!("Stopped during the move from {source} to {target}");
    if super::start::wants_stop(service, draft) {
        return;
    }
    if let Some(report) = report.filter(|report| report.phase == Phase::Failed) {
        remember_failure(draft, target, report.failure.unwrap_or_default());
        draft.status.move_failures = draft.status.move_failures.saturating_add(1);
        message = format!("Failed on {target} after the move from {source}: {}", report.message);
    }
    draft.go(ServiceState::RequestStart, Reason::MoveFailed, message);
}
