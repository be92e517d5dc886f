//! Choice of a node, and the policies after a failed start (docs/services.md, Start failures).

use super::assign::start_on;
use super::{Planner, Service, ServiceUpdate, error, ordering, preemption};
use crate::core::placement::service_facts;
use ha_api_types::event::EventType;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, ServiceReport};
use ha_api_types::resource::ServiceState;
use ha_scheduler::{Placement, Refusal, Verdict, View, best_common_node, place};

/// Returns the placement of the service according to the draft.
pub(super) fn best_placement(
    planner: &Planner<'_>,
    service: &Service<'_>,
    update: &ServiceUpdate,
) -> Placement {
    let facts = service_facts(planner.input.cluster_view, &service.resource.value, &update.status);
    // A stopped dependent is a preference only. It does not make this service leave its node.
    let is_eligible = |placement: &Placement| {
        let verdict = facts.node.as_ref().and_then(|node| placement.verdicts.get(node));
        matches!(verdict, Some(Verdict::Allowed(_)))
    };
    view_with_returning_dependents(planner, service)
        .map(|view| place(&view, service.name, &facts))
        .filter(is_eligible)
        .unwrap_or_else(|| place(&planner.view, service.name, &facts))
}

/// Returns the view in which stopped dependents of a running service still use their nodes, if there are any. They stop
/// for its move and return after it. Without them, the reason for the move could be gone before the move begins, and
/// they would stop and start repeatedly. Services with strict affinity to the service move with it.
fn view_with_returning_dependents(planner: &Planner<'_>, service: &Service<'_>) -> Option<View> {
    let services = &planner.view.services;
    if services.get(service.name).is_none_or(|facts| facts.used_nodes.is_empty()) {
        return None;
    }
    let returns = |name: &&ResourceName| {
        let facts = services.get(*name);
        facts.is_some_and(|facts| facts.is_desired && facts.used_nodes.is_empty() && facts.node.is_some())
    };
    let mut dependents = planner.order.all_dependents(service.name);
    dependents.retain(returns);
    if dependents.is_empty() {
        return None;
    }
    let companions = planner.view.rules.strict_affinity_partners(service.name);
    dependents.retain(|name| !companions.contains(*name));
    if dependents.is_empty() {
        return None;
    }
    let mut view = planner.view.clone();
    view.services.change_all(|name, facts| {
        if dependents.contains(name) {
            facts.used_nodes.extend(facts.node.clone());
        }
    });
    Some(view)
}

/// Returns the placement for a start. With `rebalance_on_start`, the previous node has no preference.
pub(super) fn best_start_placement(
    planner: &Planner<'_>,
    service: &Service<'_>,
    update: &ServiceUpdate,
) -> Placement {
    let mut facts = service_facts(planner.input.cluster_view, &service.resource.value, &update.status);
    if planner.view.settings.rebalance_on_start {
        facts.node = None;
    }
    place(&planner.view, service.name, &facts)
}

/// Places a set of companions that has no node yet on a node where all of them fit, if there is one. If each companion
/// were placed alone, the first companion could block the other companions.
pub(super) fn place_with_companions(
    planner: &Planner<'_>,
    service: &Service<'_>,
    update: &ServiceUpdate,
    placement: Placement,
) -> Placement {
    let companions = preemption::companions_without_node(planner, service);
    if placement.node.is_none() || companions.is_empty() {
        return placement;
    }
    let facts = service_facts(planner.input.cluster_view, &service.resource.value, &update.status);
    match best_common_node(&planner.view, &placement, service.name, &facts, &companions) {
        Some(node) if placement.node.as_ref() != Some(&node) => {
            Placement { node: Some(node), reason: Reason::Scheduled, ..placement }
        }
        Some(_) | None => placement,
    }
}

/// Returns why no node is eligible, with the reasons of each node.
pub(super) fn no_node_message(placement: &Placement) -> String {
    let mut nodes: Vec<String> = Vec::new();
    for (node, verdict) in &placement.verdicts {
        match verdict {
            Verdict::Refused(refusals) => {
                let first: Vec<&str> =
                    refusals.iter().map(|refusal: &Refusal| refusal.message.as_str()).collect();
                nodes.push(format!("{node}: {}", first.join(", ")));
            }
            Verdict::Allowed(_) => {}
        }
    }
    if nodes.is_empty() {
        return "No eligible node: the cluster has no nodes".to_owned();
    }
    // The condition names few nodes; `hactl why` lists all of them.
    let omitted = nodes.len().saturating_sub(8);
    nodes.truncate(8);
    let more_text = if omitted > 0 { format!("; and {omitted} more") } else { String::new() };
    format!("No eligible node: {}{more_text}", nodes.join("; "))
}

/// Reports that no node is eligible, and why.
pub(super) fn report_no_node(update: &mut ServiceUpdate, placement: &Placement) {
    update.is_stalled = true;
    update.add_wait(Reason::Unschedulable, no_node_message(placement));
}

/// Handles a failed start without a running copy. Tries another node, at most `maxRelocate` times, then the same node
/// if no other is eligible, then enters Error.
pub(super) fn start_failed(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    report: &ServiceReport,
) {
    let Some(node) = update.status.node.clone() else { return };
    let class = report.failure.unwrap_or_default();
    let failure_text =
        if report.message.is_empty() { report.reason.sentence() } else { report.message.as_str() };
    let failure_text = failure_text.to_owned();
    let never_here = class == FailureClass::NeverHere;
    record_failure(update, &node, class);
    if class == FailureClass::ConfigurationWrong {
        error::enter(planner, service, update, Reason::BadConfiguration, failure_text, true);
        return;
    }
    // A node on which the service can never run is skipped, and is not counted as an attempt.
    if !never_here && update.status.relocations >= service.resource.value.spec.max_relocate {
        let message =
            format!("{}; last failure on {node}: {failure_text}", Reason::PoliciesExhausted.sentence());
        error::enter(planner, service, update, Reason::PoliciesExhausted, message, true);
        return;
    }
    if ordering::leave_node_for_dependency(planner, service, update) {
        update.status.relocations += u32::from(!never_here);
        return;
    }
    if let Some(message) = ordering::start_blocker(planner, service) {
        update.add_wait(Reason::WaitingForDependency, message);
        return;
    }
    let mut facts = service_facts(planner.input.cluster_view, &service.resource.value, &update.status);
    facts.used_nodes.clear();
    let placement = place(&planner.view, service.name, &facts);
    let relocations = update.status.relocations + u32::from(!never_here);
    // The service then stays on the node of its next start for the length of the pause.
    let move_failures = update.status.move_failures.saturating_add(1);
    let Some(next) = placement.node.clone() else {
        if never_here && placement.verdicts.values().all(needs_change) {
            let message =
                format!("Service cannot run on {node} ({failure_text}). {}", no_node_message(&placement));
            error::enter(planner, service, update, Reason::NotInstalled, message, true);
            return;
        }
        // The service waits for a node, and leaves this node free for other services.
        let message = format!("Start failed on {node} ({failure_text}), waiting for an eligible node");
        update.transition_to(ServiceState::RequestStart, Reason::StartFailed, String::new());
        update.status.relocations = relocations;
        update.status.move_failures = move_failures;
        update.events.clear();
        update.emit_event(EventType::Warning, Reason::StartFailed, message);
        return;
    };
    if start_on(planner, service, update, &next, Reason::StartFailed) {
        update.status.relocations = relocations;
        update.status.move_failures = move_failures;
        let place = if next == node { "on the same node".to_owned() } else { format!("on {next}") };
        let message = format!("Start failed on {node} ({failure_text}), retrying {place}");
        update.events.clear();
        update.emit_event(EventType::Warning, Reason::StartFailed, message);
    }
}

/// Records a failure on a node. From then on, the node is tried last, or not at all.
pub(super) fn record_failure(update: &mut ServiceUpdate, node: &NodeName, class: FailureClass) {
    let never_here = class == FailureClass::NeverHere;
    let remembered =
        if never_here { &mut update.status.incompatible_nodes } else { &mut update.status.failed_nodes };
    add_node(remembered, node);
}

/// Adds a node to a list in the status, unless the list contains it.
pub(super) fn add_node(nodes: &mut Vec<NodeName>, node: &NodeName) {
    if !nodes.iter().any(|other| other == node) {
        nodes.push(node.to_owned());
        nodes.sort();
    }
}

/// Returns `true` if only a change of the service, its rules or the machine can make the node eligible. Without such a
/// change, a wait for the node would not end.
fn needs_change(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Allowed(_) => false,
        Verdict::Refused(refusals) => refusals.iter().any(|refusal| {
            [
                Reason::NotInstalled,
                Reason::NotInGroup,
                Reason::NodeAffinity,
                Reason::DriverMissing,
                Reason::NodePolicy,
            ]
            .contains(&refusal.reason)
        }),
    }
}
