//! Nodes where a service might already run (FENCING, section 7).

use super::{Planner, Service, identity};
use crate::core::plan_input::PlanInput;
use crate::core::world::ClusterView;
use ha_api_types::id::NodeName;
use ha_api_types::operation::OperationAction;
use ha_api_types::record::{Fence, FenceState, Phase, Proof, ServiceReport};
use ha_api_types::resource::ResourceStatus;

/// Answer of a node to which a service is not assigned: state of the service there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The service runs there.
    Running,
    /// The service does not run there.
    Stopped,
    /// The node is proven empty without a probe; contains the evidence.
    Empty(&'static str),
    /// The node is unreachable, and counts as empty because neither name nor identity was ever managed there. Contains
    /// the reason why it was not probed. The node must answer before any service starts there again.
    CountedEmpty(&'static str),
    /// The node could not determine whether the service runs there; contains the cause.
    Unknown(String),
    /// The node has not answered yet.
    Unanswered(&'static str),
}

/// Returns the answers of all nodes.
pub(super) fn answers<'a>(
    planner: &Planner<'a>,
    service: &Service<'a>,
    status: &ResourceStatus,
) -> Vec<(&'a NodeName, Answer)> {
    let input = &planner.input;
    input
        .cluster_view
        .fences
        .iter()
        .filter(|(_, fence)| !is_unregistered(&fence.value))
        .map(|(node, fence)| (node, answer(planner, service, status, node, &fence.value)))
        .collect()
}

/// Returns `true` if no epoch was ever opened for the node, so that no service was ever managed there.
fn is_unregistered(fence: &Fence) -> bool {
    fence.state == FenceState::Closed && fence.proof.is_none()
}

/// Returns `true` if the node has been silent for Th, on the clock of a leader that could commit all that time.
pub(super) fn is_unreachable(planner: &Planner<'_>, node: &NodeName) -> bool {
    let input = &planner.input;
    let valid_ms = input.cluster_view.heartbeat_valid_ms(node);
    planner.nodes.get(node).is_some_and(|health| input.now.monotonic_raw >= health.late_at)
        && input.commit_gaps.is_current(input.now.monotonic_raw, valid_ms / 2)
}

fn answer(
    planner: &Planner<'_>,
    service: &Service<'_>,
    status: &ResourceStatus,
    node: &NodeName,
    fence: &Fence,
) -> Answer {
    let input = &planner.input;
    if is_answered_by_operator(input, service, node) {
        return Answer::Empty("operator confirmed that the service does not run there");
    }
    let cluster_view = input.cluster_view;
    if planner.is_being_opened(node) {
        return Answer::Unanswered("is registering");
    }
    if cluster_view.is_known_only_from_backup(node) {
        return if cluster_view.nodes.contains_key(node) {
            Answer::Unanswered("has not been reachable since etcd was restored")
        } else {
            Answer::Empty("Node object was deleted before etcd was restored")
        };
    }
    // A resource that was deleted while it ran may have left the service running anywhere, even if it had another name.
    let deleted_at = identity::answer_required_after(cluster_view, service, node);
    let unguarded = may_run_anywhere(cluster_view, Some(status)) || deleted_at.is_some();
    match fence.state {
        FenceState::Open => {
            let answered = match input.cluster_view.service_report(service.name, node) {
                Some(report) if cluster_view.is_report_unreadable(service.name, node) => cluster_view
                    .is_report_current(service.name, node, report)
                    .then(|| Answer::Unknown(report.value.message.clone())),
                Some(report) if report.value.uid == *service.uid() && report.value.epoch == fence.epoch => {
                    // The question must be later than the deletion: earlier answers do not cover a copy that the
                    // deletion left running.
                    let is_after_deletion = deleted_at.is_none_or(|deleted| report.mod_revision > deleted);
                    is_after_deletion.then(|| answer_of_report(cluster_view, service, &report.value, status))
                }
                Some(_) | None => None,
            };
            match answered {
                Some(Answer::Unanswered(_)) | None if is_unreachable(planner, node) => {
                    if unguarded || may_run_there(input, service, node) {
                        Answer::Unanswered("is unreachable, and the service may run there")
                    } else {
                        Answer::CountedEmpty("unreachable")
                    }
                }
                Some(answer) => answer,
                None => Answer::Unanswered("has not answered yet"),
            }
        }
        FenceState::Fencing if unguarded || may_run_there(input, service, node) => {
            Answer::Unanswered("is being fenced")
        }
        FenceState::Closed if unguarded && fence.proof.is_some() => {
            Answer::Unanswered("is not registered, and only managed services are known to be stopped there")
        }
        // Neither proof shows that the machine was reset. The agent may have stopped the managed services, after which
        // the machine stays up (FENCING, section 4), or it may have registered again. Unmanaged copies keep running
        // there.
        FenceState::Fenced if unguarded && !proves_machine_empty(fence) => Answer::Unanswered(
            "was fenced after missed heartbeats, and only managed services are known to be stopped there",
        ),
        // The node stops any copy before it registers again, and answers before any service starts there.
        FenceState::Fencing => Answer::CountedEmpty("registration revoked"),
        FenceState::Closed => {
            Answer::CountedEmpty("registration revoked while no exclusive service was active")
        }
        FenceState::Fenced => match fence.proof {
            Some(Proof::CleanLeave { .. }) => Answer::CountedEmpty("clean shutdown"),
            Some(
                Proof::Silence { .. }
                | Proof::Device { .. }
                | Proof::NewBoot { .. }
                | Proof::Operator { .. }
                | Proof::Reregistered
                | Proof::NothingActive,
            )
            | None => Answer::CountedEmpty("fenced"),
        },
    }
}

/// Returns `true` if a closed epoch's proof also covers unmanaged services: the machine was reset, is off, or left.
pub(super) fn proves_machine_empty(fence: &Fence) -> bool {
    fence.state == FenceState::Fenced
        && !matches!(fence.proof, Some(Proof::Silence { .. } | Proof::Reregistered | Proof::NothingActive))
}

/// Returns `true` if a node that is closed without a proof has reported that the service may run there. Then the name
/// was managed before, and only a proof makes the node empty.
fn may_run_there(input: &PlanInput<'_>, service: &Service<'_>, node: &NodeName) -> bool {
    let cluster_view = input.cluster_view;
    cluster_view.service_report(service.name, node).is_some_and(|report| {
        cluster_view.is_report_current(service.name, node, report) && report.value.phase.may_run()
    })
}

/// Returns `true` if a service may run on a node without a permit of the node's epoch. There are three causes. The
/// service was Ignored, it may have been moved manually while the cluster was disarmed, or etcd was restored from a
/// backup without later permits.
pub(super) fn may_run_anywhere(cluster_view: &ClusterView, status: Option<&ResourceStatus>) -> bool {
    let may_have_been_moved =
        |status: &ResourceStatus| status.probe_generation.is_some() || status.probe_arming.is_some();
    cluster_view.restored.is_some() || status.is_some_and(may_have_been_moved)
}

/// Returns a report as an answer. After Ignored, or after a possible move by hand while the cluster was disarmed, only
/// a newer probe counts: earlier reports do not cover later changes. Reports about another identity, or from before the
/// current identity was stored, do not count either (FENCING, R7.2). The exception is a running copy of another
/// identity, which its node reports with its definition: this copy is adopted (R6.11).
fn answer_of_report(
    cluster_view: &ClusterView,
    service: &Service<'_>,
    report: &ServiceReport,
    status: &ResourceStatus,
) -> Answer {
    let is_probe = match report.phase {
        Phase::ProbedRunning | Phase::ProbedStopped | Phase::ProbedUnknown => true,
        Phase::Starting
        | Phase::Running
        | Phase::Stopping
        | Phase::Stopped
        | Phase::Failed
        | Phase::StopFailed
        | Phase::Receiving
        | Phase::HandingOver
        | Phase::HandedOver
        | Phase::MoveFailed => false,
    };
    let is_older = |needed_value: Option<i64>, report_value: i64| {
        needed_value.is_some_and(|needed_value| !is_probe || report_value < needed_value)
    };
    if is_older(status.probe_generation, report.probed_generation)
        || is_older(status.probe_arming, report.probed_arming)
        || is_older(
            Some(status.asked_generation).filter(|generation| *generation > 0),
            report.probed_generation,
        )
        || report.definition.is_none()
            && report
                .identity
                .as_ref()
                .is_some_and(|identity| Some(identity) != cluster_view.identity(service.name))
    {
        return Answer::Unanswered("has not answered yet");
    }
    match report.phase {
        Phase::ProbedUnknown => Answer::Unknown(report.message.clone()),
        Phase::ProbedRunning
        | Phase::Starting
        | Phase::Running
        | Phase::Stopping
        | Phase::StopFailed
        | Phase::Receiving
        | Phase::HandingOver
        | Phase::MoveFailed => Answer::Running,
        Phase::ProbedStopped | Phase::Stopped | Phase::Failed | Phase::HandedOver => Answer::Stopped,
    }
}

/// Returns `true` if an operator answers for this node with `hactl start R --not-on NODE`, recorded as an operation.
pub(super) fn is_answered_by_operator(input: &PlanInput<'_>, service: &Service<'_>, node: &NodeName) -> bool {
    input.cluster_view.open_operations().any(|(_, operation)| {
        let spec = &operation.value.spec;
        let requested_name = spec.resource.as_deref().map(ha_api_types::names::without_type);
        spec.action == OperationAction::Start
            && requested_name == Some(service.name)
            && spec.not_on.as_deref() == Some(node)
    }) && input.cluster_view.fences.contains_key(node)
}
