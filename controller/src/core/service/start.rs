//! The service states RequestStart, Starting and Started.

use super::arranged::settled;
use super::assign::start_on;
use super::policy::{choose, choose_start, start_failed};
use super::{
    Draft, Planner, Service, Standing, error, external_change, moves, operation, ordering, preemption,
    recover,
};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Phase};
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_api_types::time::Mono;
use ha_scheduler::NodeFacts;

/// Schedules a service that runs nowhere and is requested to run.
pub(super) fn request_start(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    if wants_stop(service, draft) || stops_first(planner, service, draft) {
        return;
    }
    if planner.situation.world.settings().disarmed.is_some() {
        draft.wait(Reason::Disarmed, "Cluster is disarmed");
        return;
    }
    if let Some(message) = ordering::holds_start(planner, service) {
        draft.wait(Reason::WaitingForDependency, message);
        return;
    }
    if recover::comes_back(planner, draft) {
        return;
    }
    let chosen = choose_start(planner, service, draft);
    let (placement, for_others) = settled(planner, service, draft, chosen);
    match &placement.node {
        None => preemption::make_room(planner, service, draft, &placement),
        Some(node) => {
            let node = node.clone();
            if partners_come_first(planner, service, draft, &node) {
                return;
            }
            if start_on(planner, service, draft, &node, Reason::Scheduled) {
                draft.add_words(for_others);
            }
        }
    }
}

/// Returns `true`, and waits, if companions of this service run elsewhere: they move to the node before it starts
/// there.
pub(super) fn partners_come_first(
    planner: &Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    node: &NodeName,
) -> bool {
    let elsewhere = ha_scheduler::partners_elsewhere(&planner.view, service.name, node);
    if elsewhere.is_empty() {
        return false;
    }
    let message = format!("Waiting for {} to move to {node} first", elsewhere.join(", "));
    draft.wait(Reason::PositivePartner, message);
    true
}

/// Stops a copy that was started outside hactl, according to a node's report, before the service starts anywhere.
/// Returns `true` if there is such a copy.
pub(super) fn stops_first(planner: &Planner<'_>, service: &Service<'_>, draft: &mut Draft) -> bool {
    let found = service.may_run_elsewhere(&planner.situation, None);
    let Some(node) = found.first().filter(|_| service.exclusive()) else { return false };
    let message = format!("Found running on {node}, stopping there first");
    draft.go(ServiceState::RequestStop, Reason::StartedExternally, message);
    true
}

/// Sets Stopped or Disabled immediately for a service that runs nowhere and is no longer requested to run. Returns
/// `true` if it is no longer requested to run.
pub(super) fn wants_stop(service: &Service<'_>, draft: &mut Draft) -> bool {
    if service.wanted() != RequestedState::Started {
        draft.status.preempted_by = None;
    }
    match service.wanted() {
        RequestedState::Started => false,
        RequestedState::Stopped => {
            draft.go(ServiceState::Stopped, Reason::Stopped, String::new());
            true
        }
        RequestedState::Disabled => {
            draft.go(ServiceState::Disabled, Reason::Disabled, String::new());
            true
        }
        RequestedState::Ignored => true,
    }
}

/// Handles a service whose node was ordered to start it.
pub(super) fn starting(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let situation = planner.situation;
    let Some((assignment, standing)) = service.assigned(&situation) else {
        draft.go(
            ServiceState::Queued,
            Reason::NotProbed,
            "Record of the assigned node is missing, asking every node whether the service runs there"
                .to_owned(),
        );
        return;
    };
    match standing {
        Standing::Closing | Standing::Released => {
            recover::lost(planner, service, draft, standing);
            return;
        }
        Standing::InForce => {}
    }
    if recover::frozen(planner, draft, &assignment.node) {
        return;
    }
    let Some(answer) = service.answer(&situation).filter(|answer| answer.value.phase != Phase::Starting)
    else {
        if stop_if_unwanted(planner, service, draft) {
            return;
        }
        let message = format!("Starting on {}", assignment.node);
        planner.await_action(draft, &assignment.node, Reason::Starting, message);
        return;
    };
    let report = &answer.value;
    match report.phase {
        Phase::Running => {
            if stop_if_unwanted(planner, service, draft) {
                return;
            }
            draft.status.failed_nodes.retain(|node| *node != assignment.node);
            draft.status.incompatible_nodes.retain(|node| *node != assignment.node);
            // A node where the service has just failed to start is not an immediate target for a move.
            if draft.status.failed_nodes.is_empty() {
                draft.status.move_failures = 0;
            }
            draft.status.preempted_by = None;
            draft.status.running_since = Some(situation.now.timestamp());
            if draft.status.maintenance_node.as_ref() == Some(&assignment.node) {
                draft.status.maintenance_node = None;
            }
            draft.go(ServiceState::Started, Reason::Running, format!("Running on {}", assignment.node));
        }
        Phase::Failed => {
            if !wants_stop(service, draft) {
                start_failed(planner, service, draft, report);
            }
        }
        Phase::Stopped if external_change::request_stop(service, draft, report) => {}
        Phase::Stopped => stopped_by_its_node(planner, service, draft, &assignment.node.clone()),
        Phase::StopFailed => error::stop_failed(planner, service, draft, report),
        Phase::Starting
        | Phase::Stopping
        | Phase::ProbedRunning
        | Phase::ProbedStopped
        | Phase::ProbedUnknown
        | Phase::Receiving
        | Phase::HandingOver
        | Phase::HandedOver
        | Phase::MoveFailed => {
            let message = format!("Waiting for node {} to finish its current action", assignment.node);
            planner.await_action(draft, &assignment.node, Reason::Waiting, message);
        }
    }
}

/// Handles a service that is confirmed running.
pub(super) fn started(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let situation = planner.situation;
    let Some((assignment, standing)) = service.assigned(&situation) else {
        draft.go(
            ServiceState::Queued,
            Reason::NotProbed,
            "Record of the assigned node is missing, asking every node whether the service runs there"
                .to_owned(),
        );
        return;
    };
    let node = assignment.node.clone();
    match standing {
        Standing::Closing | Standing::Released => {
            recover::lost(planner, service, draft, standing);
            return;
        }
        Standing::InForce => {}
    }
    match &assignment.action {
        Action::Start | Action::Restart => {}
        Action::Stop { .. } | Action::Migrate { .. } | Action::Leave => {
            recover::settle(service, draft, assignment, service.phase(&situation));
            return;
        }
    }
    if recover::frozen(planner, draft, &node) {
        return;
    }
    if let Some(answer) = service.answer(&situation) {
        let report = &answer.value;
        match report.phase {
            Phase::Failed => {
                if !wants_stop(service, draft) {
                    start_failed(planner, service, draft, report);
                }
                return;
            }
            Phase::Stopped if external_change::request_stop(service, draft, report) => return,
            Phase::Stopped => {
                stopped_by_its_node(planner, service, draft, &node);
                return;
            }
            Phase::StopFailed => {
                error::stop_failed(planner, service, draft, report);
                return;
            }
            Phase::Running => clear_once_stable(service, draft, answer.seen, situation.now.raw),
            Phase::Starting => draft.say(Reason::Restarted, format!("Starting again on {node}")),
            Phase::Stopping => draft.say(Reason::Stopping, format!("Stopping on {node}")),
            Phase::ProbedRunning
            | Phase::ProbedStopped
            | Phase::ProbedUnknown
            | Phase::Receiving
            | Phase::HandingOver
            | Phase::HandedOver
            | Phase::MoveFailed => {}
        }
    }
    if stop_if_unwanted(planner, service, draft) {
        return;
    }
    if situation.world.settings().disarmed.is_some() {
        draft.say(Reason::Disarmed, "Cluster is being disarmed");
        return;
    }
    // The service did not leave for maintenance, or has returned, so no return is pending.
    if draft.status.maintenance_node.as_ref() == Some(&node)
        && planner.view.nodes.get(&node).is_some_and(|facts| !facts.maintenance)
    {
        draft.status.maintenance_node = None;
    }
    if !planner.nodes.get(&node).is_some_and(crate::core::health::NodeHealth::is_heard) {
        planner.await_node(draft, &node);
        return;
    }
    if let Some(other) = service.runs_elsewhere(&situation, Some(&node)) {
        let message = runs_twice(service.name, &node, other);
        error::enter(planner, service, draft, Reason::MultipleActive, message, false);
        return;
    }
    if let Some(other) = service.may_run_elsewhere(&situation, Some(&node)).first() {
        let message =
            format!("Running on {node}; waiting for node {other} to confirm that no copy remains there");
        draft.wait(Reason::Waiting, message);
        return;
    }
    if draft.status.replacement.is_some() {
        // The service is not moved until the location of its data is known. `replacement::look` reports the wait.
        return;
    }
    if draft.reason.is_none() && !operation::carry_out(planner, service, draft) {
        let placement = choose(planner, service, draft);
        moves::improve(planner, service, draft, &placement);
    }
    // If the service is relocated automatically, that stop also serves the dependency that waits.
    if draft.status.state == ServiceState::Started
        && let Some(message) = ordering::is_waited_for(planner, service)
    {
        draft.go(ServiceState::RequestStop, Reason::StoppingForDependency, message);
    }
}

/// Returns the message about two running copies. Only an operator can decide which copy continues (FENCING, section 7).
pub(super) fn runs_twice(name: &ResourceName, first: &str, second: &str) -> String {
    format!(
        "Running on both {first} and {second}. Run \"hactl clear-error {name}\" to stop both copies and \
         start one"
    )
}

/// Ends a series of failures after the service has run for `stableSeconds`. An earlier crash counts as a failed start
/// (SEMANTICS, section 3), so that a crash loop over several nodes ends in Error.
fn clear_once_stable(service: &Service<'_>, draft: &mut Draft, since: Mono, now: Mono) {
    if draft.status.failed_nodes.is_empty() && draft.status.relocations == 0 {
        return;
    }
    let stable_ms = service.resource.value.spec.timeouts.stable_ms();
    if now < since + stable_ms {
        draft.wake_after(since, stable_ms, "a start after failures has been stable long enough");
    } else {
        draft.clear_failures();
    }
}

/// Handles a service that its agent stopped automatically, for example at D − Ts. The right to start under that
/// action is spent. The service starts again in place, under a new action, as soon as its node is eligible.
fn stopped_by_its_node(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft, node: &NodeName) {
    if wants_stop(service, draft) {
        return;
    }
    if let Some(other) = service.runs_elsewhere(&planner.situation, Some(node)) {
        // The service was moved by hand: a single running copy is adopted on its node (FENCING, section 7).
        start_on(planner, service, draft, other, Reason::Adopted);
        return;
    }
    if !planner.nodes.get(node).is_some_and(crate::core::health::NodeHealth::is_online) {
        draft.wait(Reason::LeaseLost, format!("Stopped by node {node}, which is not online"));
        return;
    }
    let exclusive = service.resource.value.spec.exclusive;
    let cannot_arm =
        |facts: &NodeFacts| facts.fenceable.is_err_and(|reason| reason != Reason::NodeUnverified);
    if exclusive && planner.view.nodes.get(node).is_some_and(cannot_arm) {
        let message =
            format!("Stopped by node {node}, which has no usable watchdog; scheduling on another node");
        draft.go(ServiceState::RequestStart, Reason::WatchdogMissing, message);
        return;
    }
    if let Some(message) = ordering::holds_restart(planner, service, node) {
        draft.wait(Reason::WaitingForDependency, message);
        return;
    }
    start_on(planner, service, draft, node, Reason::LeaseLost);
}

/// Enters RequestStop if the service, or one of its dependencies, is no longer requested to run. Returns `true` if it
/// does.
fn stop_if_unwanted(planner: &Planner<'_>, service: &Service<'_>, draft: &mut Draft) -> bool {
    match service.wanted() {
        RequestedState::Started => match ordering::has_to_stop(planner, service) {
            Some(message) => {
                draft.go(ServiceState::RequestStop, Reason::StoppingForDependency, message);
                true
            }
            None => false,
        },
        RequestedState::Ignored => false,
        RequestedState::Stopped | RequestedState::Disabled => {
            draft.go(ServiceState::RequestStop, Reason::Stopping, "Stop requested".to_owned());
            true
        }
    }
}
