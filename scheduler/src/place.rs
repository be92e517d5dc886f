//! Choosing a node for a service, with the verdict on every node.

use crate::filter::refusals;
use crate::score::{
    self, Class, NodeGroupRank, Score, loads, node_group_rank, preferences_missed, reservation_weights,
};
use crate::unit::Unit;
use crate::view::{NodeFacts, Refusal, ServiceFacts, View};
use ha_api_types::reason::Reason;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

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
    /// Why there: Placed, AlreadyThere, Failback, Preferred, MaintenanceReturn, or NoFeasibleNode.
    pub reason: Reason,
    /// The verdict on every node.
    pub verdicts: BTreeMap<String, Verdict>,
}

/// Where a service should be.
///
/// Order (SEMANTICS section 4): the highest priority class that has a feasible node; within it the service's own node
/// group; then the node that it left for maintenance, else the current node, else the best score, ties by name. Nodes
/// where it failed to start come last. Without failback it stays where it is as long as that is allowed, and goes back to
/// the node that it left for maintenance whatever its class.
///
/// A service that strict Positive rules tie to others is placed along with them: one node that may take all, with what
/// they ask for added up, so each of them comes to the same answer. Partners that do not run, and for which there is no
/// place beside those that do and those of higher priority, do not hold up the others.
///
/// Guarantees: deterministic; never names a node that a hard limit or strict rule refuses.
pub fn place(view: &View, name: &str, service: &ServiceFacts) -> Placement {
    let whole = Unit::of(view, name, service);
    let placement = place_unit(view, &whole);
    if placement.node.is_some() {
        return placement;
    }
    let fitting = fitting(view, &whole);
    let smaller = whole.without(|other, _| fitting.contains(other));
    smaller.map_or(placement, |smaller| place_unit(view, &smaller))
}

/// Of services that have no place all together those that have one: who runs, and of the others one after the other, by
/// priority and name, who finds a place beside them. Whichever of them is asked about, they are the same.
fn fitting<'a>(view: &View, whole: &Unit<'a>) -> BTreeSet<&'a str> {
    let (mut fitting, mut waiting): (Vec<_>, Vec<_>) =
        whole.members.iter().copied().partition(|(_, facts)| !facts.uses.is_empty());
    waiting.sort_by_key(|(name, facts)| (Reverse(facts.priority), *name));
    fitting.sort_by_key(|(name, _)| *name);
    for member in waiting {
        let more: Vec<_> = fitting.iter().copied().chain([member]).collect();
        if place_unit(view, &Unit::new(more.clone())).node.is_some() {
            fitting = more;
        }
    }
    fitting.into_iter().map(|(name, _)| name).collect()
}

/// Where a unit should be; the verdicts are about all its members.
pub fn place_unit(view: &View, unit: &Unit<'_>) -> Placement {
    let mut refused = BTreeMap::new();
    let mut candidates: Vec<&str> = Vec::new();
    let place = unit.node();
    let current = place.and_then(|node| view.nodes.get(node));
    for (node_name, node) in &view.nodes {
        let mut found = refusals(view, unit, node_name, node);
        if place != Some(node_name) {
            found.extend(node_group_refusal(view, current, node));
        }
        if found.is_empty() {
            candidates.push(node_name);
        } else {
            refused.insert(node_name.clone(), Verdict::Refused(found));
        }
    }
    let loads = loads(view, unit, &candidates);
    let weights = reservation_weights(view, unit, &candidates);
    let load = |node: &str| {
        loads.get(node).copied().unwrap_or(0).saturating_add(weights.get(node).copied().unwrap_or(0))
    };
    let classes: BTreeMap<&str, Vec<Reverse<Class>>> =
        candidates.iter().map(|node| (*node, unit.classes(view, node))).collect();
    let partners: BTreeSet<&[Reverse<Class>]> =
        classes.values().map(|classes| classes.get(1..).unwrap_or_default()).collect();
    let scores: BTreeMap<&str, Score> = candidates
        .iter()
        .filter_map(|node_name| {
            let node = view.nodes.get(*node_name)?;
            let own = classes.get(node_name)?;
            let rank = partners.iter().position(|rest| Some(*rest) == own.get(1..)).unwrap_or(0);
            let score = Score {
                failed_before: unit.failed_on(node_name),
                class: own.first().copied().unwrap_or(Reverse(Class::Member(0))),
                partners_class: u32::try_from(rank).unwrap_or(u32::MAX),
                node_group: node_group_rank(view, current, node),
                preferences_missed: preferences_missed(view, unit, node_name),
                load: load(node_name),
            };
            Some((*node_name, score))
        })
        .collect();
    let (node, reason) = choose(view, unit, place, &scores);
    let mut verdicts = refused;
    verdicts.extend(scores.iter().map(|(node, score)| ((*node).to_owned(), Verdict::Allowed(*score))));
    Placement { node: node.map(str::to_owned), reason, verdicts }
}

fn node_group_refusal(view: &View, current: Option<&NodeFacts>, node: &NodeFacts) -> Option<Refusal> {
    let rank = node_group_rank(view, current, node);
    if rank == NodeGroupRank::Unallocable {
        return Some(Refusal {
            reason: Reason::NodeGroupUnallocable,
            message: Reason::NodeGroupUnallocable.sentence().to_owned(),
            remedy: "set allocationPolicy of the node group to Preferred".to_owned(),
            drives: false,
        });
    }
    let leaves = current.is_some_and(|current| current.node_group != node.node_group);
    (leaves && !view.settings.inter_group_moves).then(|| Refusal {
        reason: Reason::OtherNodeGroup,
        message: Reason::OtherNodeGroup.sentence().to_owned(),
        remedy: "set scheduler.interGroupMoves of the cluster to true".to_owned(),
        drives: false,
    })
}

fn choose<'a>(
    view: &View,
    unit: &Unit<'_>,
    place: Option<&str>,
    scores: &BTreeMap<&'a str, Score>,
) -> (Option<&'a str>, Reason) {
    let Some((best, best_score)) = scores.iter().min_by_key(|(node, score)| (**score, **node)) else {
        return (None, Reason::NoFeasibleNode);
    };
    let failback = unit.failback(view);
    let same_class = |score: &Score| {
        (score.failed_before, score.class, score.partners_class)
            == (best_score.failed_before, best_score.class, best_score.partners_class)
    };
    let home = unit.maintenance_node().and_then(|home| scores.get_key_value(home)).filter(|(_, score)| {
        same_class(score) || (!failback && score.failed_before == best_score.failed_before)
    });
    if let Some((home, _)) = home {
        let reason = if place == Some(*home) { Reason::AlreadyThere } else { Reason::MaintenanceReturn };
        return (Some(home), reason);
    }
    let Some((current, current_score)) = place.and_then(|node| scores.get_key_value(node)) else {
        return (Some(best), Reason::Placed);
    };
    if current_score.failed_before && !best_score.failed_before {
        return (Some(best), Reason::Placed);
    }
    // Preferences between services count as classes do: less than the node group, and only with failback.
    let prefers = |score: &Score| (score.node_group, score.preferences_missed);
    if !failback || (same_class(current_score) && prefers(current_score) <= prefers(best_score)) {
        return (Some(current), Reason::AlreadyThere);
    }
    (Some(best), if same_class(current_score) { Reason::Preferred } else { Reason::Failback })
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
    let score::Score { failed_before, class, partners_class, node_group, preferences_missed, load } = score;
    let mut terms = vec![format!("class {}", class_name(class.0)), format!("load {load}")];
    if *failed_before {
        terms.push("failed to start there before".to_owned());
    }
    if *partners_class > 0 {
        terms.push("a lower class for those that stay with it".to_owned());
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
