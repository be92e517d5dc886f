//! The service states RequestStop, Stopping, Stopped and Disabled.

use super::assign::stop_on;
use super::policy::best_placement;
use super::start::mark_stopped_if_unrequested;
use super::{
    EpochStatus, Planner, Service, ServiceUpdate, error, external_change, operation, ordering, preemption,
    recover,
};
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Phase};
use ha_api_types::resource::{RequestedState, ServiceState};

/// Orders each node where the service may run to stop it, one at a time.
pub(super) fn request_stop(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let input = planner.input;
    let assigned = service.assignment_with_epoch(&input);
    if let Some((assignment, epoch_status)) = assigned {
        match epoch_status {
            EpochStatus::Closing => {
                recover::handle_closed_epoch(planner, service, update, epoch_status);
                return;
            }
            EpochStatus::Active => {
                if recover::freeze_if_agent_restarts(planner, update, &assignment.node) {
                    return;
                }
                let stopped =
                    matches!(service.phase(&input), Some(Phase::Stopped | Phase::Failed | Phase::HandedOver));
                if !stopped {
                    if !ordering::stop_dependents_first(planner, service, update) {
                        return;
                    }
                    let node = assignment.node.clone();
                    if stop_on(planner, service, update, &node) {
                        update.transition_to(
                            ServiceState::Stopping,
                            Reason::Stopping,
                            format!("Stopping on {node}"),
                        );
                    }
                    return;
                }
            }
            EpochStatus::Released => {}
        }
    }
    if let Some(node) = node_that_may_run(planner, service, update) {
        if stop_on(planner, service, update, &node) {
            update.transition_to(ServiceState::Stopping, Reason::Stopping, format!("Stopping on {node}"));
        }
        return;
    }
    if !mark_stopped_if_unrequested(service, update) {
        preemption::start_again(update);
    }
}

/// Returns a node where the service may still run: by that node's report, or because a stop failed there and no proof
/// exists. Only the answer to an active assignment shows that the service is stopped on its node.
fn node_that_may_run(
    planner: &Planner<'_>,
    service: &Service<'_>,
    update: &ServiceUpdate,
) -> Option<NodeName> {
    let input = planner.input;
    let stopped_at = service
        .assignment_with_epoch(&input)
        .filter(|(_, epoch_status)| *epoch_status == EpochStatus::Active)
        .map(|(assignment, _)| &assignment.node);
    if let Some(node) = service.other_possible_nodes(&input, stopped_at).first() {
        return Some((*node).to_owned());
    }
    let node = update.status.node.as_ref()?;
    let epoch = update.status.epoch?;
    let unconfirmed = service.status.is_some_and(|status| status.value.stop_confirmed == Some(false));
    let may_run_here =
        Some(node) != stopped_at && Service::epoch_status(&input, node, epoch) != EpochStatus::Released;
    (unconfirmed && may_run_here).then(|| node.to_owned())
}

/// Handles a service whose node was ordered to stop it.
pub(super) fn plan_stopping(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let input = planner.input;
    let Some((assignment, epoch_status)) = service.assignment_with_epoch(&input) else {
        update.transition_to(
            ServiceState::RequestStop,
            Reason::Stopping,
            "Record of the assigned node is missing, stopping again".to_owned(),
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
    match &assignment.action {
        Action::Stop { .. } => {}
        Action::Start | Action::Restart | Action::Migrate { .. } | Action::DoNothing => {
            update.transition_to(ServiceState::RequestStop, Reason::Stopping, String::new());
            return;
        }
    }
    if recover::freeze_if_agent_restarts(planner, update, &assignment.node) {
        return;
    }
    match service.answer(&input).map(|answer| &answer.value) {
        Some(report) if matches!(report.phase, Phase::Stopped | Phase::Failed | Phase::HandedOver) => {
            if node_that_may_run(planner, service, update).is_some() {
                update.transition_to(ServiceState::RequestStop, Reason::Stopping, String::new());
                return;
            }
            update.status.running_since = None;
            if !mark_stopped_if_unrequested(service, update) {
                preemption::start_again(update);
            }
        }
        Some(report) if report.phase == Phase::StopFailed => {
            error::stop_failed(planner, service, update, report);
        }
        Some(_) | None => {
            // An operator requests a faster stop than the stop in progress.
            let requested_timeout_ms = operation::stop_timeout_ms(service);
            if requested_timeout_ms.is_some()
                && assignment.action != (Action::Stop { timeout_ms: requested_timeout_ms })
            {
                let node = assignment.node.clone();
                stop_on(planner, service, update, &node);
            }
            let message = format!("Stopping on {}", assignment.node);
            planner.await_action(update, &assignment.node, Reason::Stopping, message);
        }
    }
}

/// Handles a service that is confirmed stopped. Its assigned node keeps it stopped; if that node is lost, another
/// node is assigned immediately, without fencing.
pub(super) fn plan_stopped(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    if follow_requested_state(service, update, RequestedState::Stopped)
        || stop_external_copy(planner, service, update)
        || operation::reassign_stopped(planner, service, update)
    {
        return;
    }
    match check_assigned_node(planner, service, update) {
        AssignedNode::Kept | AssignedNode::Awaited => {}
        AssignedNode::Lost => {
            // The assigned node has returned. The service stays assigned to it, even during maintenance.
            let returned =
                service.assignment_with_epoch(&planner.input).filter(|(assignment, epoch_status)| {
                    *epoch_status == EpochStatus::Released
                        && planner
                            .nodes
                            .get(&assignment.node)
                            .is_some_and(crate::core::health::NodeHealth::is_online)
                });
            let node_to_assign = match returned {
                Some((assignment, _)) => Some(assignment.node.clone()),
                None => best_placement(planner, service, update).node,
            };
            if let Some(node) = node_to_assign
                && stop_on(planner, service, update, &node)
            {
                update.set_message(Reason::Stopped, format!("Stopped, assigned to {node}"));
            }
        }
    }
}

/// Handles a disabled service that is confirmed stopped. The service keeps its node unless an operator moves it.
pub(super) fn plan_disabled(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    update.clear_all_failures();
    if follow_requested_state(service, update, RequestedState::Disabled)
        || stop_external_copy(planner, service, update)
        || operation::reassign_stopped(planner, service, update)
    {
        return;
    }
    match check_assigned_node(planner, service, update) {
        AssignedNode::Kept | AssignedNode::Awaited => {}
        AssignedNode::Lost => {
            // Only the previous node can be assigned again, under a newer epoch.
            let node = update.status.node.clone().filter(|node| {
                service.assignment.is_some()
                    && planner.nodes.get(node).is_some_and(crate::core::health::NodeHealth::is_online)
            });
            if let Some(node) = node
                && stop_on(planner, service, update, &node)
            {
                update.set_message(Reason::Disabled, String::new());
            }
        }
    }
}

fn follow_requested_state(service: &Service<'_>, update: &mut ServiceUpdate, from: RequestedState) -> bool {
    let requested_state = service.requested_state();
    if requested_state == from {
        return false;
    }
    match requested_state {
        RequestedState::Started => {
            update.transition_to(ServiceState::RequestStart, Reason::Scheduled, "Start requested".to_owned());
            true
        }
        RequestedState::Stopped | RequestedState::Disabled => mark_stopped_if_unrequested(service, update),
        RequestedState::Ignored => false,
    }
}

/// Stops a service that was started outside hactl on a node other than its assigned one. On the assigned node, the
/// agent stops it automatically. Returns `true` if there is such a copy.
fn stop_external_copy(planner: &Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) -> bool {
    let node_to_assign = service.assignment.map(|assignment| &assignment.value.node);
    let Some(node) = service.other_node_running_exclusive(&planner.input, node_to_assign) else {
        return false;
    };
    let message = format!("Started on {node} outside hactl, stopping there");
    update.transition_to(ServiceState::RequestStop, Reason::StartedExternally, message);
    true
}

fn is_registering(planner: &Planner<'_>, node: &NodeName) -> bool {
    planner.nodes.get(node).is_some_and(|node| node.health == crate::core::health::Health::Registering)
}

enum AssignedNode {
    Kept,
    Awaited,
    Lost,
}

/// Returns the state of a stopped service's assigned node.
fn check_assigned_node(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
) -> AssignedNode {
    let input = planner.input;
    let Some((assignment, epoch_status)) = service.assignment_with_epoch(&input) else {
        return AssignedNode::Lost;
    };
    if recover::waits_for_node_return(&input, assignment, recover::ReturnWaiter::Stopped) {
        update.set_message(Reason::Frozen, format!("Waiting for node {} to return", assignment.node));
        return AssignedNode::Awaited;
    }
    match epoch_status {
        // The node is returning right now.
        EpochStatus::Released if is_registering(planner, &assignment.node) => {
            update.set_message(
                Reason::Registering,
                format!("Waiting for node {} to register", assignment.node),
            );
            AssignedNode::Awaited
        }
        EpochStatus::Released => AssignedNode::Lost,
        EpochStatus::Closing => match service.phase(&input) {
            Some(phase) if !phase.may_run() => AssignedNode::Lost,
            Some(_) | None => {
                update
                    .add_wait(Reason::Fencing, format!("Waiting for node {} to be fenced", assignment.node));
                AssignedNode::Awaited
            }
        },
        EpochStatus::Active => {
            let answer = service.answer(&input).map(|answer| &answer.value);
            match &assignment.action {
                Action::Stop { .. } => {}
                // Without an order to stop, the agent of the node does not keep the service stopped.
                Action::Start | Action::Restart | Action::Migrate { .. } | Action::DoNothing => {
                    return AssignedNode::Lost;
                }
            }
            match answer {
                Some(report) if report.phase == Phase::StopFailed => {
                    error::stop_failed(planner, service, update, report);
                }
                Some(report)
                    if external_change::request_start(planner, service, update, &assignment.node, report) => {
                }
                Some(report) if report.phase.may_run() => {
                    let message = format!("Found running on {}, stopping there", assignment.node);
                    update.set_message(Reason::StartedExternally, message);
                }
                Some(_) | None => {}
            }
            AssignedNode::Kept
        }
    }
}
