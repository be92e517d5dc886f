//! The answer of `hactl why`: why a service runs on its node, with a verdict for each node, computed from stored
//! state.

use super::pause;
use super::placement::{has_fence_device, ungated_note};
use super::stored_view::{status_of, view};
use super::usage;
use super::world::ClusterView;
use ha_api_types::id::ResourceName;
use ha_api_types::meta::ConditionStatus;
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use ha_api_types::view::{Explanation, Verdict, VerdictCause};
use ha_scheduler::place::{priority_tier_name, score_terms};
use ha_scheduler::rebalance::overload::{ServiceCounts, relieve_crowded_node};
use ha_scheduler::rebalance::{Loads, best_move, immovable_reason};
use ha_scheduler::score::{PriorityTier, Score, priority_tier_of};
use ha_scheduler::topsis::describe_load;
use ha_scheduler::{Placement, PlacementUnit, ServiceFacts, Verdict as NodeVerdict, View, place};
use std::collections::BTreeSet;

/// Returns the explanation of a service. The explanation uses only stored state, so every controller can compute it.
pub fn explain(cluster_view: &ClusterView, resource: &Resource) -> Explanation {
    let name = &ResourceName::from(resource.name());
    let status = status_of(cluster_view, resource);
    let (mut view, _) = view(cluster_view);
    for companion in view.rules.strict_affinity_partners(name) {
        let paused = cluster_view
            .resource_statuses
            .get(&companion)
            .is_some_and(|stored| pause::is_paused_in_status(&stored.value));
        if let Some(mut facts) = view.services.get_mut(&companion) {
            facts.paused = paused;
        }
    }
    let service = view.services.get(name).cloned().unwrap_or_default();
    let placement = place(&view, name, &service);
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
    let prefix = format!("resource {name}: ");
    let waiting_for = cluster_view
        .cluster_status
        .iter()
        .flat_map(|cluster| &cluster.value.waiting_for)
        .filter_map(|sentence| sentence.strip_prefix(&prefix).map(str::to_owned))
        .collect();
    Explanation {
        resource: name.clone(),
        type_name: resource.spec.driver.type_name(),
        requested: resource.spec.state,
        state: status.state,
        node: status.node.clone(),
        target: status.target.clone(),
        running: status.running,
        usage: usage::service_usage(cluster_view, resource, &status).copied(),
        reason: ready.map_or(Reason::Pending, |ready| ready.reason),
        message: ready.map_or_else(|| Reason::Pending.sentence().to_owned(), |ready| ready.message.clone()),
        waiting_for,
        conditions: status.conditions.clone(),
        balance: balance(&view, name, &service),
        nodes: note_ungated(cluster_view, resource, verdicts(&view, name, &status, &placement)),
        help: suggested_actions(resource, &status, &placement, cluster_view),
    }
}

/// Describes how automatic rebalancing and the limit of services per node affect a service. `None` if both are off, or
/// if the service cannot be moved now.
fn balance(view: &View, name: &ResourceName, service: &ServiceFacts) -> Option<String> {
    let parts = [describe_load_imbalance(view, name, service), describe_service_limit(view, name, service)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Describes the effect of the service limit per node on a service.
fn describe_service_limit(view: &View, name: &ResourceName, service: &ServiceFacts) -> Option<String> {
    let node = service.node.as_ref().filter(|_| view.reservation.enabled && service.movable)?;
    let limit_text = ServiceCounts::of(view).describe(node)?;
    let relief = relieve_crowded_node(view, &BTreeSet::from([name]), |from| from == node);
    Some(match relief {
        Some(planned) => format!("{limit_text}; the service could move to {}", planned.to),
        None => limit_text,
    })
}

fn describe_load_imbalance(view: &View, name: &ResourceName, service: &ServiceFacts) -> Option<String> {
    let settings = &view.settings.auto_rebalance;
    if !settings.enabled || !service.movable {
        return None;
    }
    let imbalance = Loads::of(view).imbalance();
    let verdict = if let Some(immovable_reason) = immovable_reason(view, name, service) {
        format!("the service is not moved because {immovable_reason}")
    } else if imbalance <= settings.threshold {
        "no rebalancing is needed".to_owned()
    } else {
        let partners = view.rules.strict_affinity_partners(name);
        let unit_names = partners.iter().chain([name]).collect();
        match best_move(view, &unit_names, |_, _| true) {
            Some(planned) => {
                format!("with the service on {}, the imbalance would be {:.2}", planned.to, planned.after)
            }
            None => format!(
                "no eligible move of the service reduces the imbalance by {:.0} %",
                settings.margin * 100.0
            ),
        }
    };
    let threshold = settings.threshold;
    Some(format!("load imbalance of the nodes is {imbalance:.2}, threshold {threshold}: {verdict}"))
}

/// Returns the verdicts of all nodes: allowed nodes first, the best one at the top, then refused nodes by name.
fn verdicts(
    view: &View,
    name: &ResourceName,
    status: &ResourceStatus,
    placement: &Placement,
) -> Vec<Verdict> {
    let service = view.services.get(name).cloned().unwrap_or_default();
    let unit = PlacementUnit::of(view, name, &service);
    let mut allowed: Vec<(Score, Verdict)> = Vec::new();
    let mut refused = Vec::new();
    for (node, judged) in &placement.verdicts {
        let chosen = placement.node.as_ref() == Some(node);
        let verdict = Verdict {
            node: node.clone(),
            current: status.node.as_ref() == Some(node),
            chosen,
            priority: match priority_tier_of(view, name, &service, node) {
                PriorityTier::Listed(priority) => Some(priority),
                PriorityTier::Unlisted => None,
            },
            ..Verdict::default()
        };
        match judged {
            NodeVerdict::Allowed(score) => {
                let terms = score_terms(score);
                let (reason, message) = if chosen {
                    (placement.reason, placement.reason.sentence().to_owned())
                } else {
                    not_chosen(view, name, &service, score, placement)
                };
                let cause = VerdictCause { reason, message, help: String::new() };
                allowed.push((
                    *score,
                    Verdict {
                        allowed: true,
                        score: Some(terms),
                        load: describe_load(view, &unit, node),
                        causes: vec![cause],
                        ..verdict
                    },
                ));
            }
            NodeVerdict::Refused(refusals) => {
                let causes = refusals
                    .iter()
                    .map(|refusal| VerdictCause {
                        reason: refusal.reason,
                        message: refusal.message.clone(),
                        help: refusal.remedy.clone(),
                    })
                    .collect();
                refused.push(Verdict { causes, ..verdict });
            }
        }
    }
    allowed.sort_by(|(score, verdict), (other_score, other)| {
        (score, &verdict.node).cmp(&(other_score, &other.node))
    });
    allowed.into_iter().map(|(_, verdict)| verdict).chain(refused).collect()
}

/// Adds notes to eligible nodes (R8.18): a live migration there would be a relocation, or would need an operator if
/// that node failed.
fn note_ungated(cluster_view: &ClusterView, resource: &Resource, mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
    for verdict in verdicts.iter_mut().filter(|verdict| verdict.allowed && !verdict.current) {
        let has_device =
            cluster_view.nodes.get(&verdict.node).is_some_and(|node| has_fence_device(&node.value));
        if let (Some(note), Some(cause)) =
            (ungated_note(&resource.spec, &verdict.node, has_device), verdict.causes.first_mut())
        {
            cause.message = format!("{}; a move to this node is {note}", cause.message);
        }
    }
    verdicts
}

/// Returns why an allowed node was not chosen: the service failed there, or the node's priority tier is lower than
/// that of the chosen node.
fn not_chosen(
    view: &View,
    name: &ResourceName,
    service: &ServiceFacts,
    score: &Score,
    placement: &Placement,
) -> (Reason, String) {
    if score.failed_before {
        return (Reason::PreviousFailure, Reason::PreviousFailure.sentence().to_owned());
    }
    let chosen = placement.node.as_ref().and_then(|node| Some((node, placement.verdicts.get(node)?)));
    if let Some((node, NodeVerdict::Allowed(best))) = chosen
        && best.priority_tier < score.priority_tier
    {
        let preference = match (view.rules.node_rule(name), &service.group) {
            (Some(rule), _) => format!("rule {}", rule.name),
            (None, Some(group)) => format!("group {group}"),
            (None, None) => "a rule of services with strict affinity".to_owned(),
        };
        let message = format!(
            "tier {} by {preference}; {node} of tier {} is eligible",
            priority_tier_name(score.priority_tier.0),
            priority_tier_name(best.priority_tier.0)
        );
        return (Reason::LowerPriorityTier, message);
    }
    (Reason::Allowed, Reason::Allowed.sentence().to_owned())
}

/// Returns suggested actions; none if the service is in its desired state.
fn suggested_actions(
    resource: &Resource,
    status: &ResourceStatus,
    placement: &Placement,
    cluster_view: &ClusterView,
) -> Vec<String> {
    let name = &ResourceName::from(resource.name());
    let mut help = Vec::new();
    match (resource.spec.state, status.state) {
        (_, ServiceState::Error) => {
            help.push(format!("fix the cause, then run hactl clear-error {name}"));
        }
        // The service runs on a node that it should leave, but cannot leave.
        (RequestedState::Started, ServiceState::Started) if is_stalled(status) => {}
        (RequestedState::Stopped | RequestedState::Disabled | RequestedState::Ignored, _)
        | (RequestedState::Started, ServiceState::Started) => return help,
        (RequestedState::Started, _) => {}
    }
    if cluster_view.leader.is_none() {
        help.push("start ha-controller: no controller is leader (hactl status)".to_owned());
    }
    if placement.node.is_none() {
        if placement.verdicts.is_empty() {
            help.push("start ha-node-agent on a machine: no node is registered yet".to_owned());
        }
        for (node, judged) in &placement.verdicts {
            match judged {
                // A node with a single blocking reason is named first: without that reason, the node would be
                // eligible.
                NodeVerdict::Refused(refusals) => {
                    let remedies: Vec<&str> = refusals
                        .iter()
                        .map(|refusal| refusal.remedy.as_str())
                        .filter(|remedy| !remedy.is_empty())
                        .collect();
                    if !remedies.is_empty() {
                        help.push(format!("{node}: {}", remedies.join("; and ")));
                    }
                }
                NodeVerdict::Allowed(_) => {}
            }
        }
    }
    help
}

fn is_stalled(status: &ResourceStatus) -> bool {
    status
        .conditions
        .iter()
        .any(|condition| condition.kind == "Stalled" && condition.status == ConditionStatus::True)
}
