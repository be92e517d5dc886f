//! Start and stop order (`spec.dependsOn`) of one service: when it may start, when it must stop, and which services
//! stop before it.
//!
//! A failure stops only the failed service. Its dependents keep running while the service is restarted or recovered.
//! Only an intended stop, by an operator or for a move, goes through the order from the end to the beginning.

use super::{Draft, Planner, Service, Standing, conditions};
use crate::core::plan::Subject;
use crate::core::situation::Situation;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment};
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_api_types::time::Millis;

/// Returns why the service cannot start now: a dependency does not run, or is about to stop.
pub(super) fn holds_start(planner: &Planner<'_>, service: &Service<'_>) -> Option<String> {
    holds_start_of(planner, service.name)
}

/// Time within which an agent reports all services that it stopped together, in milliseconds.
const REPORTED_MS: Millis = 5_000;

/// Returns why a service that its node stopped for lack of a lease cannot start again now: see [`holds_start`]. The
/// node stopped all exclusive services, and reports them one at a time, so an older report about a dependency may no
/// longer hold. The wait is bounded, because the dependency may also have been started again before the stop was
/// reported.
pub(super) fn holds_restart(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    node: &NodeName,
) -> Option<String> {
    let situation = planner.situation;
    let world = situation.world;
    let stop = world.service_report(service.name, node).filter(|report| {
        report.value.reason == Reason::LeaseLost && situation.now.raw < report.seen + REPORTED_MS
    });
    let Some(stop) = stop else { return holds_start(planner, service) };
    let stopped_with_it = |first: &&ResourceName| {
        world.service_report(first, node).is_some_and(|report| {
            report.value.exclusive && report.value.phase.may_run() && report.modified < stop.modified
        })
    };
    let Some(first) = planner.order.before(service.name).find(stopped_with_it) else {
        return holds_start(planner, service);
    };
    let message = format!("Waiting for node {node} to report that dependency {first} is also stopped");
    let why = "an agent has reported all services that it stopped";
    planner.plan.wake(&situation, stop.seen + REPORTED_MS, why);
    Some(message)
}

/// Returns the services that do not run and cannot start now because of the start order.
pub(super) fn held_back(planner: &Planner<'_>) -> Vec<ResourceName> {
    let services = planner.view.services.iter();
    services
        .filter(|(name, facts)| {
            facts.wanted && facts.uses.is_empty() && holds_start_of(planner, name).is_some()
        })
        .map(|(name, _)| name.clone())
        .collect()
}

fn holds_start_of(planner: &Planner<'_>, name: &ResourceName) -> Option<String> {
    planner.order.before(name).next()?;
    if let Some(circle) = planner.order.circle(name) {
        return Some(format!(
            "Dependency cycle: {}; remove one of these resources from spec.dependsOn of the resource after it",
            circle.join(" → ")
        ));
    }
    planner.order.before(name).find_map(|first| holds(planner, first))
}

fn holds(planner: &Planner<'_>, first: &ResourceName) -> Option<String> {
    let world = planner.situation.world;
    let Some(resource) = world.resources.get(first) else {
        return Some(format!("Dependency {first} does not exist"));
    };
    if resource.value.metadata.deletion_timestamp.is_some() {
        return Some(format!("Dependency {first} is being deleted"));
    }
    match resource.value.spec.state {
        RequestedState::Ignored => return None,
        wanted @ (RequestedState::Stopped | RequestedState::Disabled) => {
            return Some(format!(
                "Dependency {first} has requested state {wanted:?}: run \"hactl start {first}\""
            ));
        }
        RequestedState::Started => {}
    }
    if planner.leaving.contains(first) || is_busy(&planner.situation, first) {
        return Some(format!("Waiting for the pending action of dependency {first}"));
    }
    let status = world.resource_statuses.get(first).map(|status| &status.value);
    let state = status.map_or(ServiceState::Queued, |status| status.state);
    let runs = match state {
        ServiceState::Started | ServiceState::Migrate | ServiceState::Freeze => {
            // The stored `running` may be older than the reports, for example after the node stopped all services.
            let uid = &resource.value.metadata.uid;
            status.is_some_and(|status| conditions::runs(&planner.situation, first, uid, status))
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
        // The leader assigned the dependency, and its node has not started it: it may wait for a dependency, too.
        let but = if state == ServiceState::Started { ", not running" } else { "" };
        format!("Waiting for dependency {first} to start (state {state:?}{but})")
    })
}

/// Returns why the service must stop although Started is requested: a dependency must stop.
pub(super) fn has_to_stop(planner: &Planner<'_>, service: &Service<'_>) -> Option<String> {
    let world = planner.situation.world;
    let stops = |first: &&ResourceName| {
        let Some(resource) = world.resources.get(*first) else { return false };
        let state = world.resource_statuses.get(*first).map(|status| status.value.state);
        match resource.value.spec.state {
            RequestedState::Ignored => false,
            RequestedState::Stopped | RequestedState::Disabled => true,
            RequestedState::Started => {
                matches!(state, Some(ServiceState::RequestStop | ServiceState::Stopping))
            }
        }
    };
    let first = planner.order.before(service.name).find(stops)?;
    Some(format!("Stopping because dependency {first} is stopping"))
}

/// Returns why a dependency waits for this service to stop: the dependency is moved or restarted.
pub(super) fn is_waited_for(planner: &Planner<'_>, service: &Service<'_>) -> Option<String> {
    let first = planner.order.before(service.name).find(|first| planner.leaving.contains(*first))?;
    Some(format!("Stopping because dependency {first} is being moved or restarted"))
}

/// Returns `true` if all dependents of a running service are stopped, so that it can stop. Otherwise this plan stops
/// them, and the draft reports the wait.
pub(super) fn way_is_clear(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) -> bool {
    planner.leaving.insert(service.name.clone());
    let situation = planner.situation;
    let running: Vec<&str> = planner
        .order
        .following(service.name)
        .filter(|next| may_run(&situation, next))
        .map(ResourceName::as_str)
        .collect();
    if running.is_empty() {
        return true;
    }
    let dependents = if running.len() == 1 { "dependent service" } else { "dependent services" };
    let message = format!("Waiting for {dependents} to stop: {}", running.join(", "));
    draft.wait(Reason::StoppingForDependency, message);
    false
}

/// Returns `true` if a service may run now, so that stops of its dependencies wait for it. A service that could not
/// be stopped is in Error: no stop waits for it.
fn may_run(situation: &Situation<'_>, name: &ResourceName) -> bool {
    let world = situation.world;
    let Some(resource) = world.resources.get(name) else { return false };
    if resource.value.spec.state == RequestedState::Ignored {
        return false;
    }
    if is_busy(situation, name) {
        return true;
    }
    let Some(status) = world.resource_statuses.get(name) else { return false };
    if matches!(status.value.state, ServiceState::Error | ServiceState::Ignored | ServiceState::Deleting) {
        return false;
    }
    let Some(Assignment { node, epoch, action_uid, action, .. }) =
        world.assignments.get(name).map(|assignment| &assignment.value)
    else {
        return false;
    };
    match action {
        Action::Leave => return false,
        Action::Migrate { .. } => return !is_nowhere(status.value.state),
        Action::Start | Action::Restart | Action::Stop { .. } => {}
    }
    if Service::standing(situation, node, *epoch) == Standing::Released {
        return false;
    }
    let answer = world.service_report(name, node).filter(|report| {
        report.value.action_uid.as_ref() == Some(action_uid) && report.value.epoch == *epoch
    });
    answer.is_none_or(|report| report.value.phase.may_run())
}

/// Returns `true` if a service whose last assignment is a move was found on neither side. It keeps that assignment
/// until it starts.
fn is_nowhere(state: ServiceState) -> bool {
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

fn is_busy(situation: &Situation<'_>, name: &ResourceName) -> bool {
    situation.busy.contains(&Subject::Service(name.clone()))
}
