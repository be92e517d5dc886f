//! Copies: each node, epoch and boot on which a service was permitted or received, and may still run (FENCING, R6.3 to
//! R6.6).

use super::assign::assigned_nodes;
use super::probe::{is_answered_by_operator, proves_machine_empty};
use super::{AssignmentChange, EpochStatus, Service, ServiceUpdate, fence_guard, report_guard};
use crate::core::plan_input::PlanInput;
use ha_api_types::id::{BootId, Epoch, NodeName};
use ha_api_types::record::{Action, Assignment, Phase};
use ha_api_types::resource::{ServiceCopy, ServiceDefinition};
use ha_store::Guard;
use std::borrow::Cow;

/// Updates `status.copies`. Removes copies whose node reported the stop or is released by a proof, under guards on the
/// evidence. Adds the copies of the assignment that this draft makes.
pub(super) fn update_copies(input: &PlanInput<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let mut copies = remaining_copies(input, service, update);
    if let AssignmentChange::Put(assignment) = &update.assignment_change {
        match &assignment.action {
            Action::Start | Action::Restart | Action::Migrate { .. } => {
                for copy in permitted_copies(assignment).iter().map(ReportedCopy::to_copy) {
                    copies.retain(|other| !is_same_copy(identity_of(other), identity_of(&copy)));
                    copies.push(copy);
                }
            }
            Action::Stop { .. } | Action::DoNothing => {}
        }
    }
    copies.sort_by(|left, right| (&left.node, left.epoch).cmp(&(&right.node, right.epoch)));
    update.status.copies = copies;
}

/// Returns the copies that may still run. Guards that prove the end of the other copies are added to the draft.
pub(super) fn remaining_copies(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
) -> Vec<ServiceCopy> {
    let mut copies: Vec<ServiceCopy> = Vec::new();
    for copy in std::mem::take(&mut update.status.copies) {
        match end_guards(input, service, &copy) {
            Some(guards) => update.guards.extend(guards),
            None => copies.push(copy),
        }
    }
    for reported in reported_copies(input, service) {
        // A known copy is the most frequent case, and needs no complete record.
        if copies.iter().any(|other| is_same_copy(identity_of(other), reported.identity())) {
            continue;
        }
        let copy = reported.to_copy();
        if end_guards(input, service, &copy).is_none() {
            copies.push(copy);
        }
    }
    copies
}

/// Marks copies as no longer guarded by the node's watchdog: the resource is Ignored, deleted, or may have been moved
/// by hand.
pub(super) fn mark_unguarded(copies: &mut [ServiceCopy]) {
    for copy in copies {
        copy.is_unguarded = true;
    }
}

/// Returns the guards that prove that no copy runs on another node, for a start that guarantee 1 covers. The error
/// names the first node that may still run a copy: until that copy has ended, no exclusive service is started.
///
/// For the nodes of the current assignment, `assign` already requires a proof. That proof does not cover an unguarded
/// copy (R5.24), so an unguarded copy needs its own proof. Such a copy can result from an `exclusive: false` definition
/// from before a restore or an upgrade.
pub(super) fn prove_no_other_copy(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &ServiceUpdate,
    node: &NodeName,
) -> Result<Vec<(String, Guard)>, NodeName> {
    let assigned = service.assignment.map(|assignment| assigned_nodes(&assignment.value)).unwrap_or_default();
    let mut guards = Vec::new();
    let reported = reported_copies(input, service);
    let known_copies = update.status.copies.iter().cloned().chain(reported.iter().map(ReportedCopy::to_copy));
    for copy in known_copies {
        let is_covered_by_assignment = copy.is_guarded() && assigned.contains(&(&copy.node, copy.epoch));
        if copy.node == *node || is_covered_by_assignment {
            continue;
        }
        match end_guards(input, service, &copy) {
            Some(end_guards) => guards.extend(end_guards),
            None => return Err(copy.node),
        }
    }
    Ok(guards)
}

/// Returns the definition of a copy on a node that the spec may not replace while the copy runs (FENCING, R6.11).
/// `None` without such a copy.
pub(super) fn differing_definition(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &ServiceUpdate,
    node: &NodeName,
    epoch: Epoch,
) -> Option<ServiceDefinition> {
    let desired_definition = ServiceDefinition::of(&service.resource.value);
    // If a probe found a running copy with another identity, only definitions with that identity count, not those in
    // a backup.
    let differing = input
        .cluster_view
        .service_report(service.name, node)
        .map(|report| &report.value)
        .filter(|report| report.phase == Phase::ProbedRunning && report.epoch == epoch)
        .and_then(|report| report.identity.as_ref());
    let reported = reported_copies(input, service);
    let known_copies = update.status.copies.iter().cloned().chain(reported.iter().map(ReportedCopy::to_copy));
    known_copies
        .filter(|copy| copy.node == *node && copy.epoch == epoch)
        .map(|copy| copy.definition)
        .filter(|definition| differing.is_none() || definition.identity().as_ref() == differing)
        .find(|definition| !definition.may_replace(&desired_definition))
}

/// Identity of a copy: its node, registration and definition.
type CopyIdentity<'a> = (&'a NodeName, Epoch, &'a ServiceDefinition);

fn identity_of(copy: &ServiceCopy) -> CopyIdentity<'_> {
    (&copy.node, copy.epoch, &copy.definition)
}

fn is_same_copy(left: CopyIdentity<'_>, right: CopyIdentity<'_>) -> bool {
    (left.0, left.1) == (right.0, right.1) && left.2.has_same_identity(right.2)
}

/// A copy that follows from an assignment or a report, without its own record.
struct ReportedCopy<'a> {
    node: &'a NodeName,
    epoch: Epoch,
    boot_id: &'a BootId,
    definition: Cow<'a, ServiceDefinition>,
    exclusive: bool,
}

impl ReportedCopy<'_> {
    fn identity(&self) -> CopyIdentity<'_> {
        (self.node, self.epoch, &self.definition)
    }

    fn to_copy(&self) -> ServiceCopy {
        ServiceCopy {
            node: self.node.clone(),
            epoch: self.epoch,
            boot_id: self.boot_id.clone(),
            definition: ServiceDefinition { exclusive: self.exclusive, ..self.definition.as_ref().clone() },
            is_unguarded: false,
        }
    }
}

fn permitted_copies(assignment: &Assignment) -> Vec<ReportedCopy<'_>> {
    let copy = |node, epoch, boot_id| ReportedCopy {
        node,
        epoch,
        boot_id,
        definition: Cow::Borrowed(&assignment.definition),
        exclusive: assignment.definition.exclusive,
    };
    let mut copies = vec![copy(&assignment.node, assignment.epoch, &assignment.boot_id)];
    if let Action::Migrate { target, target_epoch, target_boot_id } = &assignment.action {
        copies.push(copy(target, *target_epoch, target_boot_id));
    }
    copies
}

/// Returns the copies that follow from assignment and reports. After an upgrade from a version without `status.copies`,
/// these are all copies.
fn reported_copies<'a>(input: &PlanInput<'a>, service: &Service<'a>) -> Vec<ReportedCopy<'a>> {
    let mut copies = Vec::new();
    let assignment = service
        .assignment
        .map(|assignment| &assignment.value)
        .filter(|assignment| assignment.definition.uid == *service.uid());
    let definition = || match assignment {
        Some(assignment) => Cow::Borrowed(&assignment.definition),
        None => Cow::Owned(ServiceDefinition::of(&service.resource.value)),
    };
    if let Some(assignment) = assignment {
        match &assignment.action {
            Action::Start | Action::Restart | Action::Migrate { .. } => {
                copies.extend(permitted_copies(assignment));
            }
            Action::Stop { .. } | Action::DoNothing => {}
        }
    }
    for (node, report) in input.cluster_view.service_reports.get(service.name).into_iter().flatten() {
        let report = &report.value;
        // The copy was not permitted since the restore. The node reports the definition with which it was started
        // (R6.11).
        let is_found = report.phase == Phase::ProbedRunning && report.definition.is_some();
        let may_run = is_found || report.phase.is_permitted();
        if may_run && report.uid == *service.uid() {
            let copy = ReportedCopy {
                node,
                epoch: report.epoch,
                boot_id: &report.boot_id,
                definition: report.definition.as_deref().map_or_else(definition, Cow::Borrowed),
                exclusive: report.exclusive,
            };
            if !copies.iter().any(|other| is_same_copy(other.identity(), copy.identity())) {
                copies.push(copy);
            }
        }
    }
    copies
}

/// Returns the guards that prove that a copy no longer runs; `None` if the copy may run.
fn end_guards(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    copy: &ServiceCopy,
) -> Option<Vec<(String, Guard)>> {
    if is_answered_by_operator(input, service, &copy.node) {
        return Some(Vec::new());
    }
    let assignment = service.assignment.map(|assignment| &assignment.value);
    if let Some(assignment) = assignment
        && let Action::Migrate { target, target_epoch, .. } = &assignment.action
        && *target == copy.node
        && *target_epoch == copy.epoch
    {
        // Until the source's end, no statement about the target counts (R8.13). The next assignment depends on that
        // end.
        return None;
    }
    if is_reported_gone(input, service, copy) {
        return Some(vec![report_guard(input, &copy.node, service.name)]);
    }
    let fence = input.cluster_view.fences.get(&copy.node)?;
    let is_released = if copy.is_guarded() {
        Service::epoch_status(input, &copy.node, copy.epoch) == EpochStatus::Released
    } else {
        // Proofs (a), (f) and (g) do not cover services that the node did not guard (R5.24).
        fence.value.epoch > copy.epoch && proves_machine_empty(&fence.value)
    };
    is_released.then(|| {
        fence_guard(input, &copy.node)
            .map(|(key, revision)| (key, Guard::Unchanged(revision)))
            .into_iter()
            .collect()
    })
}

/// Returns `true` if the copy's node reports that the copy does not run: for the current action, or under a newer
/// registration.
fn is_reported_gone(input: &PlanInput<'_>, service: &Service<'_>, copy: &ServiceCopy) -> bool {
    let report = input.cluster_view.service_report(service.name, &copy.node).map(|report| &report.value);
    let is_open = input.cluster_view.unreleased_epoch(&copy.node) == Some(copy.epoch);
    let assigned = service
        .assignment
        .map(|assignment| &assignment.value)
        .filter(|assignment| assignment.node == copy.node && assignment.epoch == copy.epoch);
    let Some(report) = report.filter(|report| report.uid == copy.definition.uid) else {
        // No permit was ever committed, and without the assignment none can be.
        return assigned.is_none() && is_open && !copy.is_unguarded;
    };
    if report.epoch > copy.epoch {
        return !report.phase.may_run();
    }
    if report.epoch < copy.epoch {
        return assigned.is_none() && is_open && !copy.is_unguarded;
    }
    match report.phase {
        Phase::Stopped | Phase::Failed | Phase::HandedOver => {
            assigned.is_none_or(|assignment| report.action_uid.as_ref() == Some(&assignment.action_uid))
        }
        Phase::ProbedStopped => assigned.is_none(),
        Phase::ProbedRunning
        | Phase::ProbedUnknown
        | Phase::Starting
        | Phase::Running
        | Phase::Stopping
        | Phase::StopFailed
        | Phase::Receiving
        | Phase::HandingOver
        | Phase::MoveFailed => false,
    }
}
