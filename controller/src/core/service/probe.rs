//! Where a service might already run: FENCING, section 7.

use super::{Planner, Service};
use crate::core::situation::Situation;
use crate::core::world::World;
use ha_api_types::operation::OperationAction;
use ha_api_types::record::{Fence, FenceState, Phase, Proof, ServiceReport};
use ha_api_types::resource::ResourceStatus;

/// What is known of a service on a node that it is not assigned to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It runs there.
    Running,
    /// It does not run there.
    Stopped,
    /// Proven empty, without having been asked; by what.
    Empty(&'static str),
    /// The node could not tell.
    Unknown(String),
    /// Not answered yet.
    Missing(&'static str),
}

/// The answers of all nodes.
pub(super) fn answers<'a>(
    planner: &Planner<'a>,
    service: &Service<'a>,
    status: &ResourceStatus,
) -> Vec<(&'a str, Answer)> {
    let situation = &planner.situation;
    situation
        .world
        .fences
        .iter()
        .map(|(node, fence)| (node.as_str(), answer(situation, service, status, node, &fence.value)))
        .collect()
}

fn answer(
    situation: &Situation<'_>,
    service: &Service<'_>,
    status: &ResourceStatus,
    node: &str,
    fence: &Fence,
) -> Answer {
    if is_answered_by_operator(situation, service, node) {
        return Answer::Empty("an operator knows that it does not run there");
    }
    let world = situation.world;
    if world.is_unheard(node) {
        return if world.nodes.contains_key(node) {
            Answer::Missing("has not been heard since the store was restored")
        } else {
            Answer::Empty("its Node was deleted before the store was restored")
        };
    }
    // As may one that was deleted while it ran.
    let unguarded = may_run_anywhere(world, Some(status))
        || service.tombstone.is_some_and(|tombstone| tombstone.value.nodes.contains(node));
    match fence.state {
        FenceState::Open => match situation.world.service_report(service.name, node) {
            Some(report) if world.is_report_unreadable(service.name, node) => {
                if world.report_lives(service.name, node, report) {
                    Answer::Unknown(report.value.message.clone())
                } else {
                    Answer::Missing("has not answered yet")
                }
            }
            Some(report) if report.value.uid == service.uid() && report.value.epoch == fence.epoch => {
                of_report(&report.value, status)
            }
            Some(_) | None => Answer::Missing("has not answered yet"),
        },
        FenceState::Fencing if unguarded || may_run_there(situation, service, node) => {
            Answer::Missing("is being fenced")
        }
        FenceState::Closed if unguarded && fence.proof.is_some() => {
            Answer::Missing("is away, and only what was managed is known to be stopped there")
        }
        // Neither proves that the machine was reset: its agent stopped what was managed, and then the watchdog let it stay
        // (FENCING, section 4), or it registered. What nobody managed goes on there.
        FenceState::Fenced if unguarded && !proves_the_machine_empty(fence) => Answer::Missing(
            "was fenced by its silence, and only what was managed is known to be stopped there",
        ),
        // It must stop what it finds before it registers again.
        FenceState::Fencing => Answer::Empty("its epoch is closed"),
        FenceState::Closed => Answer::Empty("its epoch was closed while it had nothing active"),
        FenceState::Fenced => match fence.proof {
            Some(Proof::CleanLeave { .. }) => Answer::Empty("it left cleanly"),
            Some(
                Proof::Silence { .. }
                | Proof::Device { .. }
                | Proof::NewBoot { .. }
                | Proof::Operator { .. }
                | Proof::Reregistered
                | Proof::NothingActive,
            )
            | None => Answer::Empty("it was fenced"),
        },
    }
}

/// Whether a closed epoch's proof covers also what nobody managed: the machine was reset, is off, or left.
pub(super) fn proves_the_machine_empty(fence: &Fence) -> bool {
    fence.state == FenceState::Fenced
        && !matches!(fence.proof, Some(Proof::Silence { .. } | Proof::Reregistered | Proof::NothingActive))
}

/// Whether a node whose epoch is closed without a proof yet has said that the service may run there: then the name was
/// managed before, and only the proof makes the node empty.
fn may_run_there(situation: &Situation<'_>, service: &Service<'_>, node: &str) -> bool {
    let world = situation.world;
    world
        .service_report(service.name, node)
        .is_some_and(|report| world.report_lives(service.name, node, report) && report.value.phase.may_run())
}

/// Whether a service may run where no epoch of a node allowed it, whatever is managed there: it was Ignored, may have been moved
/// by hand while the cluster was disarmed, or a backup of the store was restored, which does not know what was allowed after it
/// was made.
pub(super) fn may_run_anywhere(world: &World, status: Option<&ResourceStatus>) -> bool {
    let was_let_go =
        |status: &ResourceStatus| status.probe_generation.is_some() || status.probe_arming.is_some();
    world.restored.is_some() || status.is_some_and(was_let_go)
}

/// A report as an answer. Only a newer probe answers for a service that was Ignored, or may have been moved by hand while
/// the cluster was disarmed: what was reported before says nothing about what was done to it since.
fn of_report(report: &ServiceReport, status: &ResourceStatus) -> Answer {
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
    let older = |needed: Option<i64>, made: i64| needed.is_some_and(|needed| !is_probe || made < needed);
    if older(status.probe_generation, report.probed_generation)
        || older(status.probe_arming, report.probed_arming)
    {
        return Answer::Missing("has not answered yet");
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

/// `hactl start R --not-on NODE`: an operator answers for one node, recorded as an operation.
fn is_answered_by_operator(situation: &Situation<'_>, service: &Service<'_>, node: &str) -> bool {
    service.operation.is_some_and(|request| {
        let spec = &request.operation.value.spec;
        spec.action == OperationAction::Start && spec.not_on.as_deref() == Some(node)
    }) && situation.world.fences.contains_key(node)
}
