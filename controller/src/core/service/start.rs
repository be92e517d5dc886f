//! The service states RequestStart, Starting and Started.

use super::assign::start_on;
use super::joint_placement::resolve_placement;
use super::policy::{best_placement, best_start_placement, start_failed};
use super::{
    EpochStatus, Planner, Service, ServiceUpdate, error, external_change, moves, operation, ordering,
    preemption, recover,
};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Phase};
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_api_types::time::MonotonicTime;
use ha_scheduler::NodeFacts;

/// Schedules a service that runs nowhere and is requested to run.
pub(super) fn request_start(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    if mark_stopped_if_unrequested(service, update) || stop_found_copy(planner, service, update) {
        return;
    }
    if planner.input.cluster_view.settings().disarmed.is_some() {
        update.add_wait(Reason::Disarmed, "Cluster is disarmed");
        return;
    }
    if let Some(message) = ordering::start_blocker(planner, service) {
        update.add_wait(Reason::WaitingForDependency, message);
        return;
    }
    if recover::wait_for_registration(planner, update) {
        return;
    }
    let chosen = best_start_placement(planner, service, update);
    let (placement, explanation) = resolve_placement(planner, service, update, chosen);
    match &placement.node {
        None => preemption::preempt_or_wait(planner, service, update, &placement),
        Some(node) => {
            let node = node.clone();
            if wait_for_companions(planner, service, update, &node) {
                return;
            }
            if start_on(planner, service, update, &node, Reason::Scheduled) {
                update.append_message(explanation);
            }
        }
    }
}

/// Returns `true`, and waits, if companions of this service run elsewhere: the companions move to the node before the
/// service starts there.
pub(super) fn wait_for_companions(
    planner: &Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    node: &NodeName,
) -> bool {
    let missing_companions = ha_scheduler::partners_elsewhere(&planner.view, service.name, node);
    if missing_companions.is_empty() {
        return false;
    }
    let message = format!("Waiting for {} to move to {node} first", missing_companions.join(", "));
    update.add_wait(Reason::PositivePartner, message);
    true
}

/// Stops a copy that was started outside hactl, according to a node's report, before the service starts anywhere.
/// Returns `true` if there is such a copy.
pub(super) fn stop_found_copy(
    planner: &Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
) -> bool {
    let possible_nodes = service.other_possible_nodes(&planner.input, None);
    let Some(node) = possible_nodes.first().filter(|_| service.is_exclusive()) else { return false };
    let message = format!("Found running on {node}, stopping there first");
    update.transition_to(ServiceState::RequestStop, Reason::StartedExternally, message);
    true
}

/// Sets Stopped or Disabled immediately for a service that runs nowhere and is no longer requested to run. Returns
/// `true` if it is no longer requested to run.
pub(super) fn mark_stopped_if_unrequested(service: &Service<'_>, update: &mut ServiceUpdate) -> bool {
    if service.requested_state() != RequestedState::Started {
        update.status.preempted_by = None;
    }
    match service.requested_state() {
        RequestedState::Started => false,
        RequestedState::Stopped => {
            update.transition_to(ServiceState::Stopped, Reason::Stopped, String::new());
            true
        }
        RequestedState::Disabled => {
            update.transition_to(ServiceState::Disabled, Reason::Disabled, String::new());
            true
        }
        RequestedState::Ignored => true,
    }
}

/// Handles a service whose node was ordered to start it.
pub(super) fn plan_starting(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let input = planner.input;
    let Some((assignment, epoch_status)) = service.assignment_with_epoch(&input) else {
        update.transition_to(
            ServiceState::Queued,
            Reason::NotProbed,
            "Record of the assigned node is missing, asking every node whether the service runs there"
                .to_owned(),
        );
        return;
    };
    match epoch_status {
        EpochStatus::Closing | EpochStatus::Released => {
            recover::handle_closed_epoch(planner, service, update, epoch_status);
            return;
        }
        EpochStatus::Active => {}
    }
    if recover::freeze_if_agent_restarts(planner, update, &assignment.node) {
        return;
    }
    let Some(answer) = service.answer(&input).filter(|answer| answer.value.phase != Phase::Starting) else {
        if request_stop_if_unrequested(planner, service, update) {
            return;
        }
        let message = format!("Starting on {}", assignment.node);
        planner.await_action(update, &assignment.node, Reason::Starting, message);
        return;
    };
    let report = &answer.value;
    match report.phase {
        Phase::Running => {
            if request_stop_if_unrequested(planner, service, update) {
                return;
            }
            update.status.failed_nodes.retain(|node| *node != assignment.node);
            update.status.incompatible_nodes.retain(|node| *node != assignment.node);
            // A node where the service has just failed to start is not an immediate target for a move.
            if update.status.failed_nodes.is_empty() {
                update.status.move_failures = 0;
            }
            update.status.preempted_by = None;
            update.status.running_since = Some(input.now.timestamp());
            if update.status.maintenance_node.as_ref() == Some(&assignment.node) {
                update.status.maintenance_node = None;
            }
            // The agent has emitted the event of the start.
            update.transition_without_event(
                ServiceState::Started,
                Reason::Running,
                format!("Running on {}", assignment.node),
            );
        }
        Phase::Failed => {
            if !mark_stopped_if_unrequested(service, update) {
                start_failed(planner, service, update, report);
            }
        }
        Phase::Stopped if external_change::request_stop(service, update, report) => {}
        Phase::Stopped => restart_after_agent_stop(planner, service, update, &assignment.node.clone()),
        Phase::StopFailed => error::stop_failed(planner, service, update, report),
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
            planner.await_action(update, &assignment.node, Reason::Waiting, message);
        }
    }
}

/// Handles a service that is confirmed running.
pub(super) fn plan_started(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let input = planner.input;
    let Some((assignment, epoch_status)) = service.assignment_with_epoch(&input) else {
        update.transition_to(
            ServiceState::Queued,
            Reason::NotProbed,
            "Record of the assigned node is missing, asking every node whether the service runs there"
                .to_owned(),
        );
        return;
    };
    let node = assignment.node.clone();
    match epoch_status {
        EpochStatus::Closing | EpochStatus::Released => {
            recover::handle_closed_epoch(planner, service, update, epoch_status);
            return;
        }
        EpochStatus::Active => {}
    }
    match &assignment.action {
        Action::Start | Action::Restart => {}
        Action::Stop { .. } | Action::Migrate { .. } | Action::DoNothing => {
            recover::resume_from_assignment(service, update, assignment, service.phase(&input));
            return;
        }
    }
    if recover::freeze_if_agent_restarts(planner, update, &node) {
        return;
    }
    if let Some(answer) = service.answer(&input) {
        let report = &answer.value;
        match report.phase {
            Phase::Failed => {
                if !mark_stopped_if_unrequested(service, update) {
                    start_failed(planner, service, update, report);
                }
                return;
            }
            Phase::Stopped if external_change::request_stop(service, update, report) => return,
            Phase::Stopped => {
                restart_after_agent_stop(planner, service, update, &node);
                return;
            }
            Phase::StopFailed => {
                error::stop_failed(planner, service, update, report);
                return;
            }
            Phase::Running => {
                clear_failures_if_stable(service, update, answer.first_seen_at, input.now.monotonic_raw);
            }
            Phase::Starting => update.set_message(Reason::Restarted, format!("Starting again on {node}")),
            Phase::Stopping => update.set_message(Reason::Stopping, format!("Stopping on {node}")),
            Phase::ProbedRunning
            | Phase::ProbedStopped
            | Phase::ProbedUnknown
            | Phase::Receiving
            | Phase::HandingOver
            | Phase::HandedOver
            | Phase::MoveFailed => {}
        }
    }
    if request_stop_if_unrequested(planner, service, update) {
        return;
    }
    if input.cluster_view.settings().disarmed.is_some() {
        update.set_message(Reason::Disarmed, "Cluster is being disarmed");
        return;
    }
    // The service did not leave for maintenance, or has returned, so no return is pending.
    if update.status.maintenance_node.as_ref() == Some(&node)
        && planner.view.nodes.get(&node).is_some_and(|facts| !facts.maintenance)
    {
        update.status.maintenance_node = None;
    }
    if !planner.nodes.get(&node).is_some_and(crate::core::health::NodeHealth::is_reachable) {
        planner.wait_for_node(update, &node);
        return;
    }
    if let Some(other) = service.other_node_running_exclusive(&input, Some(&node)) {
        let message = multiple_active_message(service.name, &node, other);
        error::enter(planner, service, update, Reason::MultipleActive, message, false);
        return;
    }
    if let Some(other) = service.other_possible_nodes(&input, Some(&node)).first() {
        let message =
            format!("Running on {node}; waiting for node {other} to confirm that no copy remains there");
        update.add_wait(Reason::Waiting, message);
        return;
    }
    if update.status.replacement.is_some() {
        // The service is not moved until the location of its data is known. `replacement::advance` reports the wait.
        return;
    }
    if update.reason.is_none() && !operation::execute(planner, service, update) {
        let placement = best_placement(planner, service, update);
        moves::move_if_better(planner, service, update, &placement);
    }
    // If the leader relocates the service automatically, the stop of the relocation is also the stop that the
    // dependency waits for.
    if update.status.state == ServiceState::Started
        && let Some(message) = ordering::stop_reason_of_waiting_dependency(planner, service)
    {
        update.transition_to(ServiceState::RequestStop, Reason::StoppingForDependency, message);
    }
}

/// Returns the message about two running copies. Only an operator can decide which copy continues (FENCING, section 7).
pub(super) fn multiple_active_message(name: &ResourceName, first: &str, second: &str) -> String {
    format!(
        "Running on both {first} and {second}. Run \"hactl clear-error {name}\" to stop both copies and \
         start one"
    )
}

/// Ends a series of failures after the service has run for `stableSeconds`. A crash before that time counts as a failed
/// start, so a crash loop over several nodes ends in Error.
fn clear_failures_if_stable(
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    since: MonotonicTime,
    now: MonotonicTime,
) {
    if update.status.failed_nodes.is_empty() && update.status.relocations == 0 {
        return;
    }
    let stable_ms = service.resource.value.spec.timeouts.stable_ms();
    if now < since + stable_ms {
        update.wake_after(since, stable_ms, "a start after failures has been stable for stableSeconds");
    } else {
        update.clear_failures();
    }
}

/// Handles a service that its agent stopped automatically, for example at D − Ts. The service cannot start again under
/// that action. It starts again in place, under a new action, as soon as its node is eligible.
fn restart_after_agent_stop(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    node: &NodeName,
) {
    if mark_stopped_if_unrequested(service, update) {
        return;
    }
    if let Some(other) = service.other_node_running_exclusive(&planner.input, Some(node)) {
        // The service was moved by hand: a single running copy is adopted on its node (FENCING, section 7).
        start_on(planner, service, update, other, Reason::Adopted);
        return;
    }
    if !planner.nodes.get(node).is_some_and(crate::core::health::NodeHealth::is_online) {
        update.add_wait(Reason::LeaseLost, format!("Stopped by node {node}, which is not online"));
        return;
    }
    let exclusive = service.resource.value.spec.exclusive;
    let cannot_arm =
        |facts: &NodeFacts| facts.fenceable.is_err_and(|reason| reason != Reason::NodeUnverified);
    if exclusive && planner.view.nodes.get(node).is_some_and(cannot_arm) {
        let message =
            format!("Stopped by node {node}, which has no usable watchdog; scheduling on another node");
        update.transition_to(ServiceState::RequestStart, Reason::WatchdogMissing, message);
        return;
    }
    if ordering::leave_node_for_dependency(planner, service, update) {
        return;
    }
    if let Some(message) = ordering::restart_blocker(planner, service, node) {
        update.add_wait(Reason::WaitingForDependency, message);
        return;
    }
    start_on(planner, service, update, node, Reason::LeaseLost);
}

/// Enters RequestStop if the service, or one of its dependencies, is no longer requested to run. Returns `true` if
/// the state has changed.
fn request_stop_if_unrequested(
    planner: &Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
) -> bool {
    match service.requested_state() {
        RequestedState::Started => match ordering::stop_reason(planner, service) {
            Some(message) => {
                update.transition_to(ServiceState::RequestStop, Reason::StoppingForDependency, message);
                true
            }
            None => false,
        },
        RequestedState::Ignored => false,
        RequestedState::Stopped | RequestedState::Disabled => {
            update.transition_to(ServiceState::RequestStop, Reason::Stopping, "Stop requested".to_owned());
            true
        }
    }
}
