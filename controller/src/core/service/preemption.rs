//! Preemption: a service without an eligible node makes services of lower priority leave (docs/services.md, Priority).
//!
//! Only the published status is remembered. Each plan computes again which services must leave, higher priority
//! first, and keeps the capacity free until the service has started. Preempted services are stopped like any others.
//! The service starts only after their confirmed stop, because until then they use the node.

use super::policy::{no_node_message, report_no_node};
use super::{Planner, Service, ServiceUpdate};
use crate::core::placement::service_facts;
use crate::core::plan::Subject;
use ha_api_types::id::ResourceName;
use ha_api_types::reason::Reason;
use ha_api_types::record::Action;
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_scheduler::{Placement, PreemptionRequest, preempt};
use std::collections::BTreeSet;

/// Reason why a service must leave.
#[derive(Clone, Debug)]
pub(super) struct Preemption {
    /// The service that needs the capacity.
    preempting_service: ResourceName,
    priority: i32,
}

/// Handles a service without an eligible node. The service preempts services of lower priority if the settings allow
/// this. In both cases, the service waits, and the draft reports the reason.
pub(super) fn preempt_or_wait(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    placement: &Placement,
) {
    if !planner.view.settings.preemption || service.requested_state() != RequestedState::Started {
        report_no_node(update, placement);
        return;
    }
    let mut facts = service_facts(planner.input.cluster_view, &service.resource.value, &update.status);
    facts.used_nodes.clear();
    let companions = companions_without_node(planner, service);
    let leaving = services_being_stopped(planner, service);
    let preemptible = preemptable_services(planner, service);
    let preemption_request = PreemptionRequest {
        name: service.name,
        service: &facts,
        companions: &companions,
        preemptible: &preemptible,
        leaving: &leaving,
    };
    let Some(chosen_preemption) = preempt(&planner.view, placement, &preemption_request) else {
        report_no_node(update, placement);
        return;
    };
    let priority = service.resource.value.spec.priority;
    for victim in &chosen_preemption.victims {
        let preemption = Preemption { preempting_service: service.name.clone(), priority };
        planner.preempted_services.insert(victim.clone(), preemption);
    }
    let node = chosen_preemption.node;
    let mut stopping_names: Vec<String> =
        chosen_preemption.victims.iter().map(|name| name_with_priority(planner, name)).collect();
    let already_stopping = leaving.iter().filter(|name| {
        planner.view.services.get(*name).is_some_and(|facts| facts.used_nodes.contains(&node))
    });
    stopping_names.extend(already_stopping.map(|name| name_with_priority(planner, name)));
    stopping_names.sort();
    let message = format!("Waiting for preempted services to stop on {node}: {}", stopping_names.join(", "));
    update.add_wait(Reason::Preempting, message);
    update.reserved_node = Some(node);
}

fn name_with_priority(planner: &Planner<'_>, name: &ResourceName) -> String {
    let priority = planner.view.services.get(name).map_or(0, |facts| facts.priority);
    format!("{name} (priority {priority})")
}

/// Returns the companions that are requested to run, and that also have no node or are leaving their node.
pub(super) fn companions_without_node(
    planner: &Planner<'_>,
    service: &Service<'_>,
) -> BTreeSet<ResourceName> {
    let cluster_view = planner.input.cluster_view;
    let companions = planner.view.rules.strict_affinity_partners(service.name);
    companions
        .into_iter()
        .filter(|name| {
            let started_companions = cluster_view
                .resources
                .get(name)
                .is_some_and(|other| other.value.spec.state == RequestedState::Started);
            let uses_none = planner.view.services.get(name).is_some_and(|facts| facts.used_nodes.is_empty());
            let state = cluster_view.resource_statuses.get(name).map(|status| status.value.state);
            let is_being_scheduled =
                matches!(state, Some(ServiceState::RequestStart | ServiceState::Recovery));
            let is_being_stopped = matches!(state, Some(ServiceState::RequestStop | ServiceState::Stopping));
            started_companions && ((is_being_scheduled && uses_none) || is_being_stopped)
        })
        .collect()
}

/// Returns `true` if the service was preempted by a service with a write in progress. Until that write is seen, the
/// freed capacity is not available.
pub(super) fn waits_for_preempting_service(planner: &Planner<'_>, update: &ServiceUpdate) -> bool {
    let Some(preempting_service) = &update.status.preempted_by else { return false };
    planner.input.busy.contains(&Subject::Service(preempting_service.clone()))
}

/// Returns the other services that are being stopped, or must leave in this plan.
fn services_being_stopped(planner: &Planner<'_>, service: &Service<'_>) -> BTreeSet<ResourceName> {
    let statuses = planner.input.cluster_view.resource_statuses.iter();
    statuses
        .filter(|(_, status)| {
            matches!(status.value.state, ServiceState::RequestStop | ServiceState::Stopping)
                && status.value.stop_confirmed != Some(false)
        })
        .map(|(name, _)| name.clone())
        .chain(planner.preempted_services.keys().cloned())
        .filter(|name| name != service.name)
        .collect()
}

/// Returns the running or starting services of lower priority without another action in progress. These are planned
/// later in the same plan.
fn preemptable_services(planner: &Planner<'_>, service: &Service<'_>) -> BTreeSet<ResourceName> {
    let cluster_view = planner.input.cluster_view;
    let rank = |name: &ResourceName, own_priority: i32| planner.order.priority(name, own_priority);
    let own_priority = rank(service.name, service.resource.value.spec.priority);
    cluster_view
        .resources
        .iter()
        .filter(|(name, resource)| {
            let spec = &resource.value.spec;
            rank(name, spec.priority) < own_priority
                && spec.state == RequestedState::Started
                && resource.value.metadata.deletion_timestamp.is_none()
                && !planner.input.busy.contains(&Subject::Service((*name).clone()))
        })
        .filter(|(name, _)| {
            let state = cluster_view.resource_statuses.get(*name).map(|status| status.value.state);
            let action = cluster_view.assignments.get(*name).map(|assignment| &assignment.value.action);
            matches!(state, Some(ServiceState::Starting | ServiceState::Started))
                && matches!(action, Some(Action::Start | Action::Restart))
        })
        .map(|(name, _)| name.clone())
        .collect()
}

pub(super) fn stop_if_preempted(planner: &Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let Some(Preemption { preempting_service, priority }) = planner.preempted_services.get(service.name)
    else {
        return;
    };
    if !matches!(update.status.state, ServiceState::Starting | ServiceState::Started) {
        return;
    }
    let node = update.status.node.clone().unwrap_or_default();
    update.status.preempted_by = Some(preempting_service.clone());
    update.status.maintenance_node = None;
    update.transition_to(
        ServiceState::RequestStop,
        Reason::Preempted,
        format!("Stopping on {node}: preempted by {preempting_service} (priority {priority})"),
    );
}

/// Starts a stopped service again. A preempted service is scheduled on another node.
pub(super) fn start_again(update: &mut ServiceUpdate) {
    match &update.status.preempted_by {
        Some(preempting_service) => {
            let message = format!("Preempted by {preempting_service}, scheduling on another node");
            update.transition_to(ServiceState::Recovery, Reason::Preempted, message);
        }
        None => {
            update.transition_to(
                ServiceState::RequestStart,
                Reason::Scheduled,
                "Stopped, starting again".to_owned(),
            );
        }
    }
}

/// Explains in the message of a preempted service why it lost its node.
pub(super) fn explain_preemption(update: &mut ServiceUpdate, placement: &Placement) {
    if let Some(preempting_service) = update.status.preempted_by.clone()
        && update.reserved_node.is_none()
    {
        update.waiting.clear();
        update.add_wait(
            Reason::Preempted,
            format!("Preempted by {preempting_service}. {}", no_node_message(placement)),
        );
    }
}
