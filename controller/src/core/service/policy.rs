//! Choosing a node, and what follows a failed start. SEMANTICS, sections 3 and 4.

use super::assign::start_on;
use super::{Draft, Planner, Service, error, ordering, preemption};
use crate::core::placement::service_facts;
use ha_api_types::event::EventType;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, ServiceReport};
use ha_api_types::resource::ServiceState;
use ha_scheduler::{Placement, Refusal, Verdict, place, together};

/// Where the service should be as the draft stands.
pub(super) fn choose(planner: &Planner<'_>, service: &Service<'_>, draft: &Draft) -> Placement {
    let facts = service_facts(planner.situation.world, &service.resource.value, &draft.status);
    place(&planner.view, service.name, &facts)
}

/// Where it should start: the best node rather than the one where it was, if the settings say so.
pub(super) fn choose_start(planner: &Planner<'_>, service: &Service<'_>, draft: &Draft) -> Placement {
    let mut facts = service_facts(planner.situation.world, &service.resource.value, &draft.status);
    if planner.view.settings.rebalance_on_start {
        facts.node = None;
    }
    place(&planner.view, service.name, &facts)
}

/// A set that must be together and has no place yet is put where all of it fits, if there is such a node: else the first
/// of it would keep the others out.
pub(super) fn with_companions(
    planner: &Planner<'_>,
    service: &Service<'_>,
    draft: &Draft,
    placement: Placement,
) -> Placement {
    let with = preemption::companions_without_place(planner, service);
    if placement.node.is_none() || with.is_empty() {
        return placement;
    }
    let facts = service_facts(planner.situation.world, &service.resource.value, &draft.status);
    match together(&planner.view, &placement, service.name, &facts, &with) {
        Some(node) if placement.node.as_ref() != Some(&node) => {
            Placement { node: Some(node), reason: Reason::Placed, ..placement }
        }
        Some(_) | None => placement,
    }
}

/// Why no node can take it, node by node.
pub(super) fn why_nowhere(placement: &Placement) -> String {
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
        return "no node can take it: there is no node".to_owned();
    }
    // Conditions are for people: a thousand nodes are told by `hactl why`.
    let more = nodes.len().saturating_sub(8);
    nodes.truncate(8);
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("no node can take it: {}{rest}", nodes.join("; "))
}

/// Says that no node can take it, and why.
pub(super) fn nowhere(draft: &mut Draft, placement: &Placement) {
    draft.infeasible = true;
    draft.wait(Reason::NoFeasibleNode, why_nowhere(placement));
}

/// A start failed and nothing is left running: another node, at most `maxRelocate` times; in place when no other node
/// can take it; then Error.
pub(super) fn start_failed(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    report: &ServiceReport,
) {
    let Some(node) = draft.status.node.clone() else { return };
    let class = report.failure.unwrap_or_default();
    let said = if report.message.is_empty() { report.reason.sentence() } else { report.message.as_str() };
    let said = said.to_owned();
    let never_here = class == FailureClass::NeverHere;
    remember_failure(draft, &node, class);
    if class == FailureClass::ConfigurationWrong {
        error::enter(planner, service, draft, Reason::BadConfiguration, said, true);
        return;
    }
    // A node that can never run it is skipped: that is no attempt.
    if !never_here && draft.status.relocations >= service.resource.value.spec.max_relocate {
        let message = format!("{}; last on {node}: {said}", Reason::PoliciesExhausted.sentence());
        error::enter(planner, service, draft, Reason::PoliciesExhausted, message, true);
        return;
    }
    if let Some(message) = ordering::holds_start(planner, service) {
        draft.wait(Reason::StartOrder, message);
        return;
    }
    let mut facts = service_facts(planner.situation.world, &service.resource.value, &draft.status);
    facts.uses.clear();
    let placement = place(&planner.view, service.name, &facts);
    let relocations = draft.status.relocations + u32::from(!never_here);
    // Where it starts then, it stays for a while.
    let move_failures = draft.status.move_failures.saturating_add(1);
    let Some(next) = placement.node.clone() else {
        if never_here && placement.verdicts.values().all(is_lasting) {
            let message = format!("it can never run on {node} ({said}), and {}", why_nowhere(&placement));
            error::enter(planner, service, draft, Reason::NotInstalled, message, true);
            return;
        }
        // It waits for a node without using this one, which others may need.
        let message = format!("the start on {node} failed ({said}), and a place is looked for");
        draft.go(ServiceState::RequestStart, Reason::StartFailed, String::new());
        draft.status.relocations = relocations;
        draft.status.move_failures = move_failures;
        draft.told.clear();
        draft.tell(EventType::Warning, Reason::StartFailed, message);
        return;
    };
    if start_on(planner, service, draft, &next, Reason::StartFailed) {
        draft.status.relocations = relocations;
        draft.status.move_failures = move_failures;
        let place = if next == node { format!("again on {node}") } else { format!("on {next}") };
        let message = format!("the start on {node} failed ({said}); it is tried {place}");
        draft.told.clear();
        draft.tell(EventType::Warning, Reason::StartFailed, message);
    }
}

/// Remembers that it failed on a node, which is tried last from then on, or never.
pub(super) fn remember_failure(draft: &mut Draft, node: &str, class: FailureClass) {
    let never_here = class == FailureClass::NeverHere;
    let remembered = if never_here { &mut draft.status.never_nodes } else { &mut draft.status.failed_nodes };
    remember(remembered, node);
}

/// Adds a node to those that are remembered.
pub(super) fn remember(nodes: &mut Vec<String>, node: &str) {
    if !nodes.iter().any(|known| known == node) {
        nodes.push(node.to_owned());
        nodes.sort();
    }
}

/// Whether a node is refused for what only a change of the service, its rules or the machine can mend: then waiting for it
/// would be waiting for ever.
fn is_lasting(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Allowed(_) => false,
        Verdict::Refused(refusals) => refusals.iter().any(|refusal| {
            [Reason::NotInstalled, Reason::NotInGroup, Reason::NodeAffinity, Reason::DriverMissing]
                .contains(&refusal.reason)
        }),
    }
}
