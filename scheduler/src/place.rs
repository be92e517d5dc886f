//! Choosing a node for a service, with the verdict on every node.

use crate::filter::refusals;
use crate::score::{self, Class, NodeGroupRank, Score, class_of, loads, node_group_rank, preferences_missed};
use crate::view::{Refusal, ServiceFacts, View};
use ha_api_types::reason::Reason;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What was found about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may take the service; lower is better.
    Allowed(Score),
    /// It may not, and every reason.
    Refused(Vec<Refusal>),
}

/// A choice, explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Where the service should be; `None`: nowhere.
    pub node: Option<String>,
    /// Why there: Placed, AlreadyThere, Failback, MaintenanceMove (back home), or NoFeasibleNode.
    pub reason: Reason,
    /// The verdict on every node.
    pub verdicts: BTreeMap<String, Verdict>,
}

/// Where a service should be.
///
/// Order (SEMANTICS section 4): the highest priority class that has a feasible node; within it the service's own node
/// group; then the node that it left for maintenance, else the current node, else the best score, ties by name. Nodes
/// where it failed to start come last. Without failback it stays where it is as long as that is allowed.
///
/// Guarantees: deterministic; never names a node that a hard limit or strict rule refuses.
pub fn place(view: &View, name: &str, service: &ServiceFacts) -> Placement {
    let mut refused = BTreeMap::new();
    let mut candidates: Vec<&str> = Vec::new();
    let current = service.node.as_ref().and_then(|node| view.nodes.get(node));
    for (node_name, node) in &view.nodes {
        let mut found = refusals(view, name, service, node_name, node);
        let elsewhere = service.node.as_ref() != Some(node_name);
        if elsewhere && node_group_rank(view, current, node) == NodeGroupRank::Unallocable {
            found.push(Refusal {
                reason: Reason::NodeGroupUnallocable,
                message: Reason::NodeGroupUnallocable.sentence().to_owned(),
                remedy: "set allocationPolicy of the node group to Preferred".to_owned(),
            });
        }
        if found.is_empty() {
            candidates.push(node_name);
        } else {
            refused.insert(node_name.clone(), Verdict::Refused(found));
        }
    }
    let loads = loads(view, name, service, &candidates);
    let scores: BTreeMap<&str, Score> = candidates
        .iter()
        .filter_map(|node_name| {
            let node = view.nodes.get(*node_name)?;
            let score = Score {
                failed_before: service.failed_nodes.contains(*node_name),
                class: Reverse(class_of(view, name, service, node_name)),
                node_group: node_group_rank(view, current, node),
                preferences_missed: preferences_missed(view, name, node_name),
                load: loads.get(*node_name).copied().unwrap_or(0),
            };
            Some((*node_name, score))
        })
        .collect();
    let (node, reason) = choose(view, service, &scores);
    let mut verdicts = refused;
    verdicts.extend(scores.iter().map(|(node, score)| ((*node).to_owned(), Verdict::Allowed(*score))));
    Placement { node: node.map(str::to_owned), reason, verdicts }
}

fn choose<'a>(
    view: &View,
    service: &ServiceFacts,
    scores: &BTreeMap<&'a str, Score>,
) -> (Option<&'a str>, Reason) {
    let Some((best, best_score)) = scores.iter().min_by_key(|(node, score)| (**score, **node)) else {
        return (None, Reason::NoFeasibleNode);
    };
    let same_class = |node: &str| {
        scores
            .get_key_value(node)
            .filter(|(_, score)| {
                score.class == best_score.class && score.failed_before == best_score.failed_before
            })
            .map(|(node, _)| *node)
    };
    if let Some(home) = service.maintenance_node.as_deref().and_then(same_class) {
        let reason = if service.node.as_deref() == Some(home) {
            Reason::AlreadyThere
        } else {
            Reason::MaintenanceMove
        };
        return (Some(home), reason);
    }
    let Some((current, current_score)) = service.node.as_deref().and_then(|node| scores.get_key_value(node))
    else {
        return (Some(best), Reason::Placed);
    };
    let nofailback =
        service.group.as_ref().and_then(|group| view.groups.get(group)).is_some_and(|group| group.nofailback);
    if current_score.failed_before && !best_score.failed_before {
        return (Some(best), Reason::Placed);
    }
    if current_score.class == best_score.class || !service.failback || nofailback {
        return (Some(current), Reason::AlreadyThere);
    }
    (Some(best), Reason::Failback)
}

/// The priority class of a node, for explanations.
pub fn class_name(class: Class) -> String {
    match class {
        Class::Member(priority) => priority.to_string(),
        Class::Others => "none".to_owned(),
    }
}

/// The terms of a score, for explanations.
pub fn score_terms(score: &Score) -> String {
    let score::Score { failed_before, class, node_group, preferences_missed, load } = score;
    let mut terms = vec![format!("class {}", class_name(class.0)), format!("load {load}")];
    if *failed_before {
        terms.push("failed to start there before".to_owned());
    }
    match node_group {
        NodeGroupRank::Own => {}
        NodeGroupRank::Preferred => terms.push("another node group".to_owned()),
        NodeGroupRank::LastResort => terms.push("a node group of last resort".to_owned()),
        NodeGroupRank::Unallocable => terms.push("a node group that takes nothing new".to_owned()),
    }
    if *preferences_missed > 0 {
        terms.push(format!("{preferences_missed} preferences missed"));
    }
    terms.join(", ")
}

#[cfg(test)]
mod tests;
