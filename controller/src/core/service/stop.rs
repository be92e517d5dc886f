//! The service states RequestStop, Stopping, Stopped and Disabled.

use super::assign::stop_on;
use super::policy::choose;
use super::start::wants_stop;
use super::{
    Draft, Planner, Service, Standing, error, external_change, operation, ordering, preemption, recover,
};
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Phase};
use ha_api_types::resource::{RequestedState, ServiceState};

/// Orders each node where the service may run to stop it, one at a time.
pub(super) fn request_stop(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let situation = planner.situation;
    let assigned = service.assigned(&situation);
    if let Some((assignment, standing)) = assigned {
        match standing {
            Standing::Closing => {
                recover::lost(planner, service, draft, standing);
                return;
            }
            Standing::InForce => {
                if recover::frozen(planner, draft, &assignment.node) {
                    return;
                }
                let stopped = matches!(
                    service.phase(&situation),
                    Some(Phase::Stopped | Phase::Failed | Phase::HandedOver)
                );
                if !stopped {
                    if !ordering::way_is_clear(planner, service, draft) {
                        return;
                    }
                    let node = assignment.node.clone();
                    if stop_on(planner, service, draft, &node) {
                        draft.go(ServiceState::Stopping, Reason::Stopping, format!("Stopping on {node}"));
                    }
                    return;
                }
            }
            Standing::Released => {}
        }
    }
    if let Some(node) = remaining(planner, service, draft) {
        if stop_on(planner, service, draft, &node) {
            draft.go(ServiceState::Stopping, Reason::Stopping, format!("Stopping on {node}"));
        }
        return;
    }
    if !wants_stop(service, draft) {
        preemption::start_again(draft);
    }
}

/// Returns a node where the service may still run: by that node's report, or because a stop failed there and no proof
/// exists. Only the answer to an active assignment shows that the service is stopped on its node.
fn remaining(planner: &Planner<'_>, service: &Service<'_>, draft: &Draft) -> Option<NodeName> {
    let situation = planner.situation;
    let stopped_at = service
        .assigned(&situation)
        .filter(|(_, standing)| *standing == Standing::InForce)
        .map(|(assignment, _)| &assignment.node);
    if let Some(node) = service.may_run_elsewhere(&situation, stopped_at).first() {
        return Some((*node).to_owned());
    }
    let node = draft.status.node.as_ref()?;
    let epoch = draft.status.epoch?;
    let unconfirmed = service.status.is_some_and(|status| status.value.stop_confirmed == Some(false));
    let here = Some(node) != stopped_at && Service::standing(&situation, node, epoch) != Standing::Released;
    (unconfirmed && here).then(|| node.to_owned())
}

/// Handles a service whose node was ordered to stop it.
pub(super) fn stopping(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let situation = planner.situation;
    let Some((assignment, standing)) = service.assigned(&situation) else {
        draft.go(
            ServiceState::RequestStop,
            Reason::Stopping,
            "Record of the assigned node is missing, stopping again".to_owned(),
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
    match &assignment.action {
        Action::Stop { .. } => {}
        Action::Start | Action::Restart | Action::Migrate { .. } | Action::Leave => {
            draft.go(ServiceState::RequestStop, Reason::Stopping, String::new());
            return;
        }
    }
    if recover::frozen(planner, draft, &assignment.node) {
        return;
    }
    match service.answer(&situation).map(|answer| &answer.value) {
        Some(report) if matches!(report.phase, Phase::Stopped | Phase::Failed | Phase::HandedOver) => {
            if remaining(planner, service, draft).is_some() {
                draft.go(ServiceState::RequestStop, Reason::Stopping, String::new());
                return;
            }
            draft.status.running_since = None;
            if !wants_stop(service, draft) {
                preemption::start_again(draft);
            }
        }
        Some(report) if report.phase == Phase::StopFailed => {
            error::stop_failed(planner, service, draft, report);
        }
        Some(_) | None => {
            // An operator requests a faster stop than the one in progress.
            let asked = operation::stop_timeout_ms(service);
            if asked.is_some() && assignment.action != (Action::Stop { timeout_ms: asked }) {
                let node = assignment.node.clone();
                stop_on(planner, service, draft, &node);
            }
            let message = format!("Stopping on {}", assignment.node);
            planner.await_action(draft, &assignment.node, Reason::Stopping, message);
        }
    }
}

/// Handles a service that is confirmed stopped. Its assigned node keeps it stopped; if that node is lost, another
/// node is assigned immediately, without fencing.
pub(super) fn stopped(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    if changes(service, draft, RequestedState::Stopped)
        || started_outside(planner, service, draft)
        || operation::rehome(planner, service, draft)
    {
        return;
    }
    match home(planner, service, draft) {
        Home::Kept | Home::Waits => {}
        Home::Lost => {
            // The assigned node has returned and is kept, also in maintenance.
            let returned = service.assigned(&planner.situation).filter(|(assignment, standing)| {
                *standing == Standing::Released
                    && planner
                        .nodes
                        .get(&assignment.node)
                        .is_some_and(crate::core::health::NodeHealth::is_online)
            });
            let home = match returned {
                Some((assignment, _)) => Some(assignment.node.clone()),
                None => choose(planner, service, draft).node,
            };
            if let Some(node) = home
                && stop_on(planner, service, draft, &node)
            {
                draft.say(Reason::Stopped, format!("Stopped, assigned to {node}"));
            }
        }
    }
}

/// Handles a disabled service that is confirmed stopped. It keeps its node unless an operator moves it.
pub(super) fn disabled(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    draft.forget_failures();
    if changes(service, draft, RequestedState::Disabled)
        || started_outside(planner, service, draft)
        || operation::rehome(planner, service, draft)
    {
        return;
    }
    match home(planner, service, draft) {
        Home::Kept | Home::Waits => {}
        Home::Lost => {
            // Only the previous node can be assigned again, under a newer epoch.
            let node = draft.status.node.clone().filter(|node| {
                service.assignment.is_some()
                    && planner.nodes.get(node).is_some_and(crate::core::health::NodeHealth::is_online)
            });
            if let Some(node) = node
                && stop_on(planner, service, draft, &node)
            {
                draft.say(Reason::Disabled, String::new());
            }
        }
    }
}

fn changes(service: &Service<'_>, draft: &mut Draft, from: RequestedState) -> bool {
    let wanted = service.wanted();
    if wanted == from {
        return false;
    }
    match wanted {
        RequestedState::Started => {
            draft.go(ServiceState::RequestStart, Reason::Scheduled, "Start requested".to_owned());
            true
        }
        RequestedState::Stopped | RequestedState::Disabled => wants_stop(service, draft),
        RequestedState::Ignored => false,
    }
}

/// Stops a service that was started outside hactl on a node other than its assigned one. On the assigned node, the
/// agent stops it automatically. Returns `true` if there is such a copy.
fn started_outside(planner: &Planner<'_>, service: &Service<'_>, draft: &mut Draft) -> bool {
    let home = service.assignment.map(|assignment| &assignment.value.node);
    let Some(node) = service.runs_elsewhere(&planner.situation, home) else { return false };
    let message = format!("Started on {node} outside hactl, stopping there");
    draft.go(ServiceState::RequestStop, Reason::StartedExternally, message);
    true
}

fn is_registering(planner: &Planner<'_>, node: &NodeName) -> bool {
    planner.nodes.get(node).is_some_and(|node| node.health == crate::core::health::Health::Registering)
}

enum Home {
    Kept,
    Waits,
    Lost,
}

/// Returns the state of a stopped service's assigned node.
fn home(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) -> Home {
    let situation = planner.situation;
    let Some((assignment, standing)) = service.assigned(&situation) else { return Home::Lost };
    if recover::keeps_its_place(&situation, assignment, recover::Waits::Stopped) {
        draft.say(Reason::Frozen, format!("Waiting for node {} to return", assignment.node));
        return Home::Waits;
    }
    match standing {
        // The node is returning right now.
        Standing::Released if is_registering(planner, &assignment.node) => {
            draft.say(Reason::Registering, format!("Waiting for node {} to register", assignment.node));
            Home::Waits
        }
        Standing::Released => Home::Lost,
        Standing::Closing => match service.phase(&situation) {
            Some(phase) if !phase.may_run() => Home::Lost,
            Some(_) | None => {
                draft.wait(Reason::Fencing, format!("Waiting for node {} to be fenced", assignment.node));
                Home::Waits
            }
        },
        Standing::InForce => {
            let answer = service.answer(&situation).map(|answer| &answer.value);
            match &assignment.action {
                Action::Stop { .. } => {}
                // The start failed. Only an order to stop keeps the service stopped.
                Action::Start | Action::Restart | Action::Migrate { .. } | Action::Leave => {
                    return Home::Lost;
                }
            }
            match answer {
                Some(report) if report.phase == Phase::StopFailed => {
                    error::stop_failed(planner, service, draft, report);
                }
                Some(report)
                    if external_change::request_start(planner, service, draft, &assignment.node, report) => {}
                Some(report) if report.phase.may_run() => {
                    let message = format!("Found running on {}, stopping there", assignment.node);
                    draft.say(Reason::StartedExternally, message);
                }
                Some(_) | None => {}
            }
            Home::Kept
        }
    }
}
