//! The choice of a node for a service, with the verdict on every node.

use crate::filter::{is_eligible, query_refusals};
use crate::placement_query::{Candidate, PlacementQuery};
use crate::score::{
    self, NodeGroupRank, PriorityTier, Score, count_violated_preferences, loads, node_group_rank,
};
use crate::unit::PlacementUnit;
use crate::view::{NodeFacts, Refusal, ServiceFacts, View};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The result of the evaluation of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The node is eligible. A lower score is better.
    Allowed(Score),
    /// The node is not eligible, with every blocking reason.
    Refused(Vec<Refusal>),
}

/// The chosen node, with an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The node for the service; `None` if no node is eligible.
    pub node: Option<NodeName>,
    /// Reason for the choice: Scheduled, CurrentNode, Failback, Preferred, ReturningFromMaintenance, or Unschedulable.
    pub reason: Reason,
    /// The verdict on every node, by node name.
    pub verdicts: BTreeMap<NodeName, Verdict>,
}

/// Chooses the node for a service.
///
/// Order (docs/placement.md):
///
/// 1. the highest priority tier that has an eligible node;
/// 2. within that tier, the node group of the service;
/// 3. the node that the service left for maintenance, or else its current node, or else the node with the best score;
/// 4. the node name.
///
/// Nodes on which the service failed to start come last. Without failback, a service stays on its current node as long
/// as that node is eligible. After maintenance it returns to the node that it left, regardless of that node's tier.
///
/// Services that strict Positive rules tie together are scheduled together, on one node that fits their summed
/// requests. Each of them therefore gets the same result. If no node fits all, stopped partners of lower priority are
/// omitted, so that they do not delay the others.
///
/// Guarantees: deterministic; never returns a node that a hard limit or a strict rule excludes.
///
/// ```
/// use ha_api_types::reason::Reason;
/// use ha_scheduler::{NodeFacts, ServiceFacts, Verdict, View, place};
///
/// let mut view = View::default();
/// view.nodes.insert("node1".into(), NodeFacts { maintenance: true, ..NodeFacts::default() });
/// view.nodes.insert("node2".into(), NodeFacts::default());
/// let web = ServiceFacts { driver: Some("systemd".to_owned()), ..ServiceFacts::default() };
/// let placement = place(&view, &"web".into(), &web);
/// assert_eq!((placement.node.as_deref(), placement.reason), (Some("node2"), Reason::Scheduled));
/// let Verdict::Refused(refusals) = &placement.verdicts["node1"] else { panic!("node1 is eligible") };
/// assert_eq!(refusals[0].reason, Reason::NodeInMaintenance);
/// ```
pub fn place(view: &View, name: &ResourceName, service: &ServiceFacts) -> Placement {
    let whole_unit = PlacementUnit::of(view, name, service);
    let placement = place_unit(view, &whole_unit);
    if placement.node.is_some() {
        return placement;
    }
    fitting_part(view, &whole_unit).map_or(placement, |smaller| place_unit(view, &smaller))
}

/// Returns the part of a unit that fits on a node if the whole unit does not; the service itself is always a part.
/// `None` if no member can be omitted.
fn fitting_part<'a>(view: &View, whole_unit: &PlacementUnit<'a>) -> Option<PlacementUnit<'a>> {
    if whole_unit.members.len() == 1 {
        return None;
    }
    let fitting = fitting_members(view, whole_unit);
    whole_unit.retaining(|other, _| fitting.contains(other))
}

/// Returns the members that fit together on one node: the running members, then each stopped member that still fits, by
/// priority and name. The result is the same for every member of the unit.
fn fitting_members<'a>(view: &View, whole_unit: &PlacementUnit<'a>) -> BTreeSet<&'a ResourceName> {
    let (mut fitting, mut stopped): (Vec<_>, Vec<_>) =
        whole_unit.members.iter().copied().partition(|(_, facts)| !facts.used_nodes.is_empty());
    stopped.sort_by_key(|(name, facts)| (Reverse(facts.priority), *name));
    fitting.sort_by_key(|(name, _)| *name);
    for member in stopped {
        let with_member: Vec<_> = fitting.iter().copied().chain([member]).collect();
        if choose_unit(view, &PlacementUnit::new(with_member.clone())).0.is_some() {
            fitting = with_member;
        }
    }
    fitting.into_iter().map(|(name, _)| name).collect()
}

/// Chooses the node for a unit. The verdicts are about all members of the unit.
pub fn place_unit(view: &View, unit: &PlacementUnit<'_>) -> Placement {
    let query = PlacementQuery::of(view, unit);
    let scores = scores(&query);
    let (node, reason) = choose_by_score(&query, &scores);
    let mut verdicts = BTreeMap::new();
    let mut allowed = scores.iter().peekable();
    for (name, node) in &view.nodes {
        let verdict = if let Some((_, score)) = allowed.next_if(|(allowed, _)| *allowed == name) {
            Verdict::Allowed(*score)
        } else {
            Verdict::Refused(all_refusals(&query, name, node))
        };
        verdicts.insert(name.clone(), verdict);
    }
    Placement { node: node.cloned(), reason, verdicts }
}

/// The eligible nodes of a unit.
pub(crate) struct EligibleNodes {
    /// Scores by node; their loads are 0.
    pub(crate) scores: BTreeMap<NodeName, Score>,
    /// The blocking reasons of the requested node; `None` if it is eligible or does not exist.
    pub(crate) refusals: Option<Vec<Refusal>>,
}

/// Returns the eligible nodes of a unit, and the blocking reasons of one node. Compared with [`place_unit`], this function
/// neither computes loads nor explains the other nodes.
pub(crate) fn eligible_nodes(
    view: &View,
    unit: &PlacementUnit<'_>,
    node: Option<&NodeName>,
) -> EligibleNodes {
    let query = PlacementQuery::of(view, unit);
    let scores: BTreeMap<NodeName, Score> = scores_without_load(&query, &eligible_candidates(&query))
        .into_iter()
        .map(|(name, score)| (name.clone(), score))
        .collect();
    let refusals = node
        .filter(|node| !scores.contains_key(*node))
        .and_then(|node| Some(all_refusals(&query, node, view.nodes.get(node)?)));
    EligibleNodes { scores, refusals }
}

fn all_refusals(query: &PlacementQuery<'_>, name: &NodeName, node: &NodeFacts) -> Vec<Refusal> {
    let mut refusals = query_refusals(query, name, node);
    refusals.extend(node_group_refusal(query, name, node));
    refusals
}

/// Chooses the node for a service as [`place`] does, but without the verdicts, which takes a fraction of the time.
pub fn choose<'a>(
    view: &'a View,
    name: &'a ResourceName,
    service: &'a ServiceFacts,
) -> (Option<&'a NodeName>, Reason) {
    let whole_unit = PlacementUnit::of(view, name, service);
    let chosen = choose_unit(view, &whole_unit);
    if chosen.0.is_some() {
        return chosen;
    }
    fitting_part(view, &whole_unit).map_or(chosen, |smaller| choose_unit(view, &smaller))
}

fn choose_unit<'a>(view: &'a View, unit: &PlacementUnit<'_>) -> (Option<&'a NodeName>, Reason) {
    let query = PlacementQuery::of(view, unit);
    let (node, reason) = choose_by_score(&query, &scores(&query));
    // The looked-up name has the lifetime of the view.
    (node.and_then(|node| view.nodes.get_key_value(node)).map(|(node, _)| node), reason)
}

/// Returns the eligible nodes with their scores, in the order of names.
fn scores<'a>(query: &'a PlacementQuery<'_>) -> Vec<(&'a NodeName, Score)> {
    let candidates = eligible_candidates(query);
    let loads = loads(query, &candidates);
    let scores = scores_without_load(query, &candidates);
    scores.into_iter().zip(loads).map(|((name, score), load)| (name, Score { load, ..score })).collect()
}

fn eligible_candidates<'a>(query: &'a PlacementQuery<'_>) -> Vec<Candidate<'a>> {
    let mut candidates: Vec<Candidate<'_>> = Vec::with_capacity(query.view.nodes.len());
    candidates.extend(query.candidates().filter(|candidate| is_eligible_with_group(query, candidate)));
    candidates
}

fn scores_without_load<'a>(
    query: &'a PlacementQuery<'_>,
    candidates: &[Candidate<'a>],
) -> Vec<(&'a NodeName, Score)> {
    let mut partners: Vec<Vec<Reverse<PriorityTier>>> = Vec::new();
    if query.has_several_priority_lists() {
        partners.extend(
            candidates.iter().map(|candidate| query.priority_tiers(candidate.name).skip(1).collect()),
        );
        partners.sort();
        partners.dedup();
    }
    let score = |candidate: &Candidate<'a>| {
        let rank = match partners.as_slice() {
            [] | [_] => 0,
            several => {
                several.binary_search(&query.priority_tiers(candidate.name).skip(1).collect()).unwrap_or(0)
            }
        };
        let partners_tier = u32::try_from(rank).unwrap_or(u32::MAX);
        (candidate.name, Score { partners_tier, ..score_on(query, candidate) })
    };
    candidates.iter().map(score).collect()
}

/// Returns `true` if a node is eligible for a unit, including the rules for node groups.
pub(crate) fn is_eligible_with_group(query: &PlacementQuery<'_>, candidate: &Candidate<'_>) -> bool {
    is_eligible(query, candidate) && node_group_refusal(query, candidate.name, candidate.node).is_none()
}

/// Returns the part of a node's score that does not depend on other nodes: all but the load and the tier of partners.
pub(crate) fn score_on(query: &PlacementQuery<'_>, candidate: &Candidate<'_>) -> Score {
    let Candidate { name, node, .. } = *candidate;
    Score {
        failed_before: query.unit.has_failed_on(name),
        priority_tier: query.priority_tiers(name).next().unwrap_or(Reverse(PriorityTier::Listed(0))),
        partners_tier: 0,
        node_group: node_group_rank(query.view, query.current_facts, node),
        violated_preferences: count_violated_preferences(query, name),
        load: 0,
    }
}

/// Returns the reason why node groups block a node; `None` for the unit's own node.
fn node_group_refusal(query: &PlacementQuery<'_>, name: &NodeName, node: &NodeFacts) -> Option<Refusal> {
    let PlacementQuery { view, current_node, current_facts, .. } = *query;
    let is_unallocable = node_group_rank(view, current_facts, node) == NodeGroupRank::Unallocable;
    let is_other_group = current_facts.is_some_and(|current| current.node_group != node.node_group);
    if !is_unallocable && (!is_other_group || view.settings.inter_group_moves) || current_node == Some(name) {
        return None;
    }
    if is_unallocable {
        return Some(Refusal {
            reason: Reason::NodeGroupUnallocable,
            message: Reason::NodeGroupUnallocable.sentence().to_owned(),
            remedy: format!(
                "hactl set nodegroup/{} allocationPolicy=Preferred",
                node.node_group.as_deref().unwrap_or("default")
            ),
            evicts_running: false,
        });
    }
    Some(Refusal {
        reason: Reason::OtherNodeGroup,
        message: Reason::OtherNodeGroup.sentence().to_owned(),
        remedy: "hactl set cluster/default scheduler.interGroupMoves=true".to_owned(),
        evicts_running: false,
    })
}

/// Returns the chosen node and the reason for the choice.
fn choose_by_score<'a>(
    query: &PlacementQuery<'_>,
    scores: &[(&'a NodeName, Score)],
) -> (Option<&'a NodeName>, Reason) {
    let PlacementQuery { view, unit, current_node, .. } = *query;
    // The scores are ordered by node name, and `min_by_key` returns the first of equal ones.
    let Some((best, best_score)) = scores.iter().min_by_key(|(_, score)| *score) else {
        return (None, Reason::Unschedulable);
    };
    let score_of = |node: &NodeName| {
        let index = scores.binary_search_by(|(scored_node, _)| (*scored_node).cmp(node)).ok()?;
        Some(&scores[index])
    };
    let has_failback = unit.has_failback(view);
    let is_in_best_tier = |score: &Score| {
        (score.failed_before, score.priority_tier, score.partners_tier)
            == (best_score.failed_before, best_score.priority_tier, best_score.partners_tier)
    };
    let left_node = unit.maintenance_node().and_then(score_of).filter(|(_, score)| {
        is_in_best_tier(score) || (!has_failback && score.failed_before == best_score.failed_before)
    });
    if let Some((left_node, _)) = left_node {
        let reason = if current_node == Some(*left_node) {
            Reason::CurrentNode
        } else {
            Reason::ReturningFromMaintenance
        };
        return (Some(left_node), reason);
    }
    let Some((current, current_score)) = current_node.and_then(score_of) else {
        return (Some(best), Reason::Scheduled);
    };
    if current_score.failed_before && !best_score.failed_before {
        return (Some(best), Reason::Scheduled);
    }
    // Preferred rules between services weigh as priority tiers do: less than the node group, and only with failback.
    let preference_rank = |score: &Score| (score.node_group, score.violated_preferences);
    if !has_failback
        || (is_in_best_tier(current_score) && preference_rank(current_score) <= preference_rank(best_score))
    {
        return (Some(current), Reason::CurrentNode);
    }
    (Some(best), if is_in_best_tier(current_score) { Reason::Preferred } else { Reason::Failback })
}

/// Returns the text for a priority tier in explanations.
pub fn priority_tier_name(tier: PriorityTier) -> String {
    match tier {
        PriorityTier::Listed(priority) => priority.to_string(),
        PriorityTier::Unlisted => "none".to_owned(),
    }
}

/// Returns the text for the terms of a score in explanations.
pub fn score_terms(score: &Score) -> String {
    let score::Score { failed_before, priority_tier, partners_tier, node_group, violated_preferences, load } =
        score;
    let mut terms = vec![format!("tier {}", priority_tier_name(priority_tier.0)), format!("load {load}")];
    if *failed_before {
        terms.push("start failed before".to_owned());
    }
    if *partners_tier > 0 {
        terms.push("lower tier for services with affinity".to_owned());
    }
    match node_group {
        NodeGroupRank::Own => {}
        NodeGroupRank::Preferred => terms.push("another node group".to_owned()),
        NodeGroupRank::LastResort => terms.push("node group of last resort".to_owned()),
        NodeGroupRank::Unallocable => terms.push("node group closed to new services".to_owned()),
    }
    if *violated_preferences > 0 {
        terms.push(format!("preferred rules violated: {violated_preferences}"));
    }
    terms.join(", ")
}

#[cfg(test)]
mod tests;
