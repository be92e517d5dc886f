//! Start and stop order (`spec.dependsOn`) of one service: conditions for its start and its stop, and the services that
//! stop before it.
//!
//! A failure stops only the failed service. Its dependents keep running while the service is restarted or recovered.
//! Only an intended stop, by an operator or for a move, also stops the dependents, in reverse order.

use super::{EpochStatus, Planner, Service, ServiceUpdate, conditions};
use crate::core::plan::Subject;
use crate::core::plan_input::PlanInput;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment};
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_api_types::time::Millis;

/// Returns why the service cannot start now: a dependency does not run, or is about to stop.
pub(super) fn start_blocker(planner: &Planner<'_>, service: &Service<'_>) -> Option<String> {
    start_blocker_of(planner, service.name)
}

/// Returns why the service cannot start before a dependency is scheduled. The dependency uses no node yet, and may need
/// one that this service uses.
pub(super) fn unscheduled_dependency(planner: &Planner<'_>, name: &ResourceName) -> Option<String> {
    let services = &planner.view.services;
    planner
        .order
        .dependencies(name)
        .filter(|dependency| {
            services.get(dependency.as_str()).is_some_and(|facts| facts.used_nodes.is_empty())
        })
        .find_map(|dependency| dependency_blocker(planner, dependency))
}

/// Returns `true` if a service that does not run waits for a dependency without a node. The service then leaves its own
/// node, which the dependency or another service may need.
pub(super) fn leave_node_for_dependency(
    planner: &Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
) -> bool {
    let Some(message) = unscheduled_dependency(planner, service.name) else { return false };
    update.transition_to(ServiceState::RequestStart, Reason::WaitingForDependency, message);
    true
}

/// Returns the running services that would not start again after a relocation, and cannot move live.
pub(super) fn services_without_restart(planner: &Planner<'_>) -> Vec<ResourceName> {
    let services = planner.view.services.iter();
    services
        .filter(|(_, facts)| facts.is_desired && !facts.moves_live && !facts.used_nodes.is_empty())
        .map(|(name, _)| name.clone())
        .filter(|name| unscheduled_dependency(planner, name).is_some())
        .collect()
}

/// Time within which an agent reports all services that it stopped together, in milliseconds.
const STOP_REPORT_MS: Millis = 5_000;

/// Returns why a service cannot start again now, after its node stopped it because the lease expired: see
/// [`start_blocker`]. The node stopped all exclusive services and reports them one at a time, so an older report about
/// a dependency may no longer hold. The wait is bounded, because the dependency may also have been started again before
/// the stop was reported.
pub(super) fn restart_blocker(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    node: &NodeName,
) -> Option<String> {
    let input = planner.input;
    let cluster_view = input.cluster_view;
    let stop = cluster_view.service_report(service.name, node).filter(|report| {
        report.value.reason == Reason::LeaseLost
            && input.now.monotonic_raw < report.first_seen_at + STOP_REPORT_MS
    });
    let Some(stop) = stop else { return start_blocker(planner, service) };
    let dependent_stop_warning = |dependency: &&ResourceName| {
        cluster_view.service_report(dependency, node).is_some_and(|report| {
            report.value.exclusive && report.value.phase.may_run() && report.mod_revision < stop.mod_revision
        })
    };
    let Some(dependency) = planner.order.dependencies(service.name).find(dependent_stop_warning) else {
        return start_blocker(planner, service);
    };
    let message = format!("Waiting for node {node} to report that dependency {dependency} is also stopped");
    let wake_reason = "an agent has reported all services that it stopped";
    planner.plan.wake_at(&input, stop.first_seen_at + STOP_REPORT_MS, wake_reason);
    Some(message)
}

/// Returns the services that do not run and cannot start now because of the start order.
pub(super) fn blocked_services(planner: &Planner<'_>) -> Vec<ResourceName> {
    let services = planner.view.services.iter();
    services
        .filter(|(name, facts)| {
            facts.is_desired && facts.used_nodes.is_empty() && start_blocker_of(planner, name).is_some()
        })
        .map(|(name, _)| name.clone())
        .collect()
}

fn start_blocker_of(planner: &Planner<'_>, name: &ResourceName) -> Option<String> {
    planner.order.dependencies(name).next()?;
    if let Some(dependency_cycle) = planner.order.dependency_cycle(name) {
        return Some(format!(
            "Dependency cycle: {}; remove one of these resources from spec.dependsOn of the resource after it",
            dependency_cycle.join(" → ")
        ));
    }
    planner.order.dependencies(name).find_map(|dependency| dependency_blocker(planner, dependency))
}

fn dependency_blocker(planner: &Planner<'_>, dependency: &ResourceName) -> Option<String> {
    let cluster_view = planner.input.cluster_view;
    let Some(resource) = cluster_view.resources.get(dependency) else {
        return Some(format!("Dependency {dependency} does not exist"));
    };
    if resource.value.metadata.deletion_timestamp.is_some() {
        return Some(format!("Dependency {dependency} is being deleted"));
    }
    match resource.value.spec.state {
        RequestedState::Ignored => return None,
        desired_state @ (RequestedState::Stopped | RequestedState::Disabled) => {
            return Some(format!(
                "Dependency {dependency} has requested state {desired_state:?}: run \"hactl start {dependency}\""
            ));
        }
        RequestedState::Started => {}
    }
    if planner.stopping_services.contains(dependency) || has_write_in_progress(&planner.input, dependency) {
        return Some(format!("Waiting for the pending action of dependency {dependency}"));
    }
    let status = cluster_view.resource_statuses.get(dependency).map(|status| &status.value);
    let state = status.map_or(ServiceState::Queued, |status| status.state);
    let runs = match state {
        ServiceState::Started | ServiceState::Migrate | ServiceState::Freeze => {
            // The stored `running` may be older than the reports, for example after the node stopped all services.
            let uid = &resource.value.metadata.uid;
            status.is_some_and(|status| {
                conditions::is_reported_running(&planner.input, dependency, uid, status)
            })
        }
        ServiceState::Queued
        | ServiceState::RequestStart
        | ServiceState::Starting
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Stopped
        | ServiceState::Relocate
        | ServiceState::Fence
        | ServiceState::Recovery
        | ServiceState::Error
        | ServiceState::Disabled
        | ServiceState::Ignored
        | ServiceState::Deleting => false,
    };
    (!runs).then(|| {
        // The dependency is assigned but not started. It may itself wait for a dependency.
        let suffix = if state == ServiceState::Started { ", not running" } else { "" };
        format!("Waiting for dependency {dependency} to start (state {state:?}{suffix})")
    })
}

/// Returns why the service must stop although Started is requested: a dependency must stop.
pub(super) fn stop_reason(planner: &Planner<'_>, service: &Service<'_>) -> Option<String> {
    let cluster_view = planner.input.cluster_view;
    let stops = |dependency: &&ResourceName| {
        let Some(resource) = cluster_view.resources.get(*dependency) else { return false };
        let state = cluster_view.resource_statuses.get(*dependency).map(|status| status.value.state);
        match resource.value.spec.state {
            RequestedState::Ignored => false,
            RequestedState::Stopped | RequestedState::Disabled => true,
            RequestedState::Started => {
                matches!(state, Some(ServiceState::RequestStop | ServiceState::Stopping))
            }
        }
    };
    let dependency = planner.order.dependencies(service.name).find(stops)?;
    Some(format!("Stopping because dependency {dependency} is stopping"))
}

/// Returns why a dependency waits for this service to stop: the dependency is moved or restarted.
pub(super) fn stop_reason_of_waiting_dependency(
    planner: &Planner<'_>,
    service: &Service<'_>,
) -> Option<String> {
    let dependency = planner
        .order
        .dependencies(service.name)
        .find(|dependency| planner.stopping_services.contains(*dependency))?;
    Some(format!("Stopping because dependency {dependency} is being moved or restarted"))
}

/// Returns `true` if all dependents of a running service are stopped, so that it can stop. Otherwise this plan stops
/// them, and the draft reports the wait.
pub(super) fn stop_dependents_first(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
) -> bool {
    planner.stopping_services.insert(service.name.clone());
    let input = planner.input;
    let running: Vec<&str> = planner
        .order
        .dependents(service.name)
        .filter(|next| may_run(&input, next))
        .map(ResourceName::as_str)
        .collect();
    if running.is_empty() {
        return true;
    }
    let dependents = if running.len() == 1 { "dependent service" } else { "dependent services" };
    let message = format!("Waiting for {dependents} to stop: {}", running.join(", "));
    update.add_wait(Reason::StoppingForDependency, message);
    false
}

/// Returns `true` if a service may run now, so that stops of its dependencies wait for it. No stop waits for a service
/// that could not be stopped, which is in Error.
fn may_run(input: &PlanInput<'_>, name: &ResourceName) -> bool {
    let cluster_view = input.cluster_view;
    let Some(resource) = cluster_view.resources.get(name) else { return false };
    if resource.value.spec.state == RequestedState::Ignored {
        return false;
    }
    if has_write_in_progress(input, name) {
        return true;
    }
    let Some(status) = cluster_view.resource_statuses.get(name) else { return false };
    if matches!(status.value.state, ServiceState::Error | ServiceState::Ignored | ServiceState::Deleting) {
        return false;
    }
    let Some(Assignment { node, epoch, action_uid, action, .. }) =
        cluster_view.assignments.get(name).map(|assignment| &assignment.value)
    else {
        return false;
    };
    match action {
        Action::DoNothing => return false,
        Action::Migrate { .. } => return !has_ended_move(status.value.state),
        Action::Start | Action::Restart | Action::Stop { .. } => {}
    }
    if Service::epoch_status(input, node, *epoch) == EpochStatus::Released {
        return false;
    }
    let answer = cluster_view.service_report(name, node).filter(|report| {
        report.value.action_uid.as_ref() == Some(action_uid) && report.value.epoch == *epoch
    });
    answer.is_none_or(|report| report.value.phase.may_run())
}

/// Returns `true` if a service whose last assignment is a move was found on neither side. The service keeps that
/// assignment until it starts.
fn has_ended_move(state: ServiceState) -> bool {
    match state {
        ServiceState::RequestStart
        | ServiceState::Recovery
        | ServiceState::Stopped
        | ServiceState::Disabled => true,
        ServiceState::Queued
        | ServiceState::Starting
        | ServiceState::Started
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Fence
        | ServiceState::Freeze
        | ServiceState::Error
        | ServiceState::Ignored
        | ServiceState::Deleting => false,
    }
}

fn has_write_in_progress(input: &PlanInput<'_>, name: &ResourceName) -> bool {
    input.busy.contains(&Subject::Service(name.clone()))
}
