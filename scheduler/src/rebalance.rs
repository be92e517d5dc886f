//! Rebalancing: the imbalance of the nodes' load, and the one move of a running service that lowers it most.
//!
//! Under unchanged load, each move lowers the imbalance by at least `margin` of its value. The sequence of moves therefore
//! ends, and no move is reversed.

pub mod overload;

use crate::place::{is_eligible_with_group, score_on};
use crate::placement_query::PlacementQuery;
use crate::score::NodeGroupRank;
use crate::topsis;
use crate::unit::PlacementUnit;
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::cluster::{RebalanceMethod, SchedulerMode};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::quantity::{Amounts, Quantity};
use std::collections::BTreeSet;

/// Maximum number of moves, best first, that are checked for eligibility of the target.
const MAX_EXAMINED_MOVES: usize = 1000;

/// A move that lowers the imbalance.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// Name of the service that was chosen; `companions` move with it.
    pub service: ResourceName,
    /// Names of the services that move together with it, because of strict Positive rules.
    pub companions: Vec<ResourceName>,
    /// Current node of the service.
    pub from: NodeName,
    /// Target node.
    pub to: NodeName,
    /// Imbalance before the move.
    pub before: f64,
    /// Imbalance after the move.
    pub after: f64,
}

/// The load of the nodes that count for the balance: online, not in maintenance, and with known capacity.
///
/// The load of a node is the mean of its used shares of cpu and memory, from requests or measurements according to
/// `scheduler.mode`. It includes use outside hactl. An amount with unknown capacity is omitted.
#[derive(Clone, Debug)]
pub struct Loads<'a> {
    mode: SchedulerMode,
    nodes: Vec<NodeLoad<'a>>,
    sum: f64,
    squares: f64,
}

#[derive(Clone, Debug)]
struct NodeLoad<'a> {
    name: &'a NodeName,
    capacity: &'a Amounts,
    load: f64,
}

impl<'a> Loads<'a> {
    /// Computes the current load of all nodes that are included in the imbalance.
    pub fn of(view: &'a View) -> Loads<'a> {
        let mode = view.settings.mode;
        let mut nodes: Vec<NodeLoad<'a>> = view
            .nodes
            .iter()
            .filter(|(_, node)| counts_for_balance(node))
            .filter_map(|(name, node)| {
                let load = share(&node.capacity, &node.reserved)?;
                Some(NodeLoad { name, capacity: &node.capacity, load })
            })
            .collect();
        for facts in view.services.values() {
            for node in &facts.used_nodes {
                if let Ok(index) = nodes.binary_search_by(|loaded| loaded.name.cmp(node)) {
                    nodes[index].load += share(nodes[index].capacity, &facts.load(mode)).unwrap_or(0.0);
                }
            }
        }
        let sum = nodes.iter().map(|node| node.load).sum();
        let squares = nodes.iter().map(|node| node.load * node.load).sum();
        Loads { mode, nodes, sum, squares }
    }

    /// Returns the imbalance: the coefficient of variation of node load, that is, standard deviation divided by mean.
    /// Returns 0 if no capacity is in use.
    pub fn imbalance(&self) -> f64 {
        self.variation(self.sum, self.squares)
    }

    /// Returns each node that counts for the balance; `true` if its load is above the mean.
    pub fn nodes_by_side(&self) -> impl Iterator<Item = (&'a NodeName, bool)> {
        let mean = self.sum / self.nodes.len() as f64;
        self.nodes.iter().map(move |node| (node.name, node.load > mean))
    }

    fn variation(&self, sum: f64, squares: f64) -> f64 {
        let count = self.nodes.len() as f64;
        let mean = sum / count;
        if self.nodes.len() < 2 || mean <= f64::EPSILON {
            return 0.0;
        }
        (squares / count - mean * mean).max(0.0).sqrt() / mean
    }

    /// Computes the imbalance after a move of this load, in constant time.
    fn imbalance_after_move(&self, amounts: &Amounts, from: usize, to: usize) -> f64 {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let new_source_load = source.load - share(source.capacity, amounts).unwrap_or(0.0);
        let new_target_load = target.load + share(target.capacity, amounts).unwrap_or(0.0);
        let sum = self.sum - source.load - target.load + new_source_load + new_target_load;
        let squares = self.squares - source.load * source.load - target.load * target.load
            + new_source_load * new_source_load
            + new_target_load * new_target_load;
        self.variation(sum, squares)
    }

    fn position(&self, name: &NodeName) -> Option<usize> {
        self.nodes.binary_search_by(|loaded| loaded.name.cmp(name)).ok()
    }
}

/// Returns the mean of the used shares of the amounts with known capacity.
fn share(capacity: &Amounts, used: &Amounts) -> Option<f64> {
    let used_share = |capacity: Option<Quantity>, used: Option<Quantity>| {
        let capacity = capacity.filter(|capacity| capacity.milli() > 0)?;
        Some(used.unwrap_or_default().as_f64() / capacity.as_f64())
    };
    match (used_share(capacity.cpu, used.cpu), used_share(capacity.memory, used.memory)) {
        (Some(cpu), Some(memory)) => Some(f64::midpoint(cpu, memory)),
        (only, None) | (None, only) => only,
    }
}

/// Returns the best move of one of these services between nodes for which `is_suitable` returns `true`. The move must
/// lower the imbalance by `margin` or more.
///
/// Services that strict Positive rules keep together move together, if all of them are among `services`. Only services
/// that can be live-migrated are moved. The target must be eligible, in the same node group, and in no lower priority
/// tier. The target must not violate more preferred rules, because the service would then move back.
///
/// Method BestScore chooses the move with the lowest imbalance after it. Method Topsis chooses the move with the best
/// outcome by the score of modes Static and Dynamic. Ties go to the smaller service, then by name.
///
/// Guarantees: deterministic; the verdict on the target is Allowed; `after` is at most `(1 − margin) × before`, and
/// less than `before`.
pub fn best_move(
    view: &View,
    services: &BTreeSet<&ResourceName>,
    is_suitable: impl Fn(&NodeName, &NodeName) -> bool,
) -> Option<Move> {
    let loads = Loads::of(view);
    let before = loads.imbalance();
    let max_after = before * (1.0 - view.settings.auto_rebalance.margin);
    let mut improvements: Vec<(f64, f64, &ResourceName, usize, usize)> = Vec::new();
    let mut visited: BTreeSet<&ResourceName> = BTreeSet::new();
    for name in services {
        let Some((name, facts)) = view.services.get_key_value(*name) else { continue };
        let Some(from) = facts.node.as_ref().and_then(|node| loads.position(node)) else { continue };
        if visited.contains(name) {
            continue;
        }
        let Some(unit) = movable_unit(view, name, facts) else { continue };
        if !unit.members.iter().all(|(member, _)| services.contains(member)) {
            continue;
        }
        visited.extend(unit.members.iter().map(|(member, _)| *member));
        let load = unit.load(loads.mode);
        let size = share(loads.nodes[from].capacity, &load).unwrap_or(0.0);
        let source_name = loads.nodes[from].name;
        for to in
            (0..loads.nodes.len()).filter(|to| *to != from && is_suitable(source_name, loads.nodes[*to].name))
        {
            let after = loads.imbalance_after_move(&load, from, to);
            // A difference of rounding size is not a gain.
            if after <= max_after && after < before - 1e-9 {
                improvements.push((after, size, name, from, to));
            }
        }
    }
    improvements.sort_by(|left, right| {
        (left.0.total_cmp(&right.0))
            .then(left.1.total_cmp(&right.1))
            .then((left.2, left.4).cmp(&(right.2, right.4)))
    });
    improvements.truncate(MAX_EXAMINED_MOVES);
    let moves = improvements.into_iter().map(|(after, _, name, from, to)| Move {
        service: name.to_owned(),
        companions: view
            .rules
            .strict_affinity_partners(name)
            .into_iter()
            .filter(|partner| is_running(view, partner))
            .collect(),
        from: loads.nodes[from].name.to_owned(),
        to: loads.nodes[to].name.to_owned(),
        before,
        after,
    });
    let mut allowed = moves.filter(|planned| is_allowed(view, planned));
    match view.settings.auto_rebalance.method {
        RebalanceMethod::BestScore => allowed.next(),
        RebalanceMethod::Topsis => {
            let mut allowed: Vec<Move> = allowed.collect();
            let best = topsis::best_move(view, &allowed)?;
            Some(allowed.swap_remove(best))
        }
    }
}

fn is_running(view: &View, name: &ResourceName) -> bool {
    view.services.get(name).is_some_and(|facts| !facts.used_nodes.is_empty())
}

/// Returns a service and all services that strict Positive rules keep with it, if they may be moved for balance: they
/// run on one node, and no action on any of them is in progress.
fn movable_unit<'v>(
    view: &'v View,
    name: &'v ResourceName,
    facts: &'v ServiceFacts,
) -> Option<PlacementUnit<'v>> {
    let is_movable = |(_, member): &(&ResourceName, &ServiceFacts)| {
        member.moves_live
            && member.movable
            && member.used_nodes.len() == 1
            && member.used_nodes == facts.used_nodes
            && member.maintenance_node.is_none()
    };
    let unit = PlacementUnit::of(view, name, facts);
    let partners = view.rules.strict_affinity_partners(name);
    let counts_for_balance = |partner: &&ResourceName| {
        view.services.get(*partner).is_some_and(|facts| !facts.used_nodes.is_empty() || facts.is_desired)
    };
    (partners.iter().filter(counts_for_balance).all(|partner| unit.contains(partner))
        && unit.members.iter().all(is_movable))
    .then_some(unit)
}

/// Returns `true` if the target is eligible and the service would stay there. The current node may be over its limits,
/// which does not prevent the move.
fn is_allowed(view: &View, planned: &Move) -> bool {
    let Some((name, facts)) = view.services.get_key_value(&planned.service) else { return false };
    let unit = PlacementUnit::of(view, name, facts);
    let query = PlacementQuery::of(view, &unit);
    let (Some(from), Some(to)) = (query.candidate(&planned.from), query.candidate(&planned.to)) else {
        return false;
    };
    let (source_score, target_score) = (score_on(&query, &from), score_on(&query, &to));
    is_eligible_with_group(&query, &to)
        && !target_score.failed_before
        && target_score.node_group == NodeGroupRank::Own
        && query
            .priority_tiers(to.name)
            .zip(query.priority_tiers(from.name))
            .all(|(target_tier, source_tier)| target_tier <= source_tier)
        && (target_score.priority_tier, target_score.violated_preferences)
            <= (source_score.priority_tier, source_score.violated_preferences)
}

/// Returns `true` if a node is included in the imbalance: the node is online and not in maintenance.
fn counts_for_balance(node: &NodeFacts) -> bool {
    node.online.is_ok() && !node.maintenance
}

/// Returns the reason why a service is never moved to balance the load; `None` if it may be moved.
pub fn immovable_reason(view: &View, name: &ResourceName, facts: &ServiceFacts) -> Option<&'static str> {
    if !facts.moves_live {
        return Some("driver does not support live migration");
    }
    let partners = view.rules.strict_affinity_partners(name);
    let is_immovable =
        |partner: &ResourceName| view.services.get(partner).is_some_and(|facts| !facts.moves_live);
    partners
        .iter()
        .any(is_immovable)
        .then_some("the driver of a service with affinity to this service does not support live migration")
}

#[cfg(test)]
mod tests;
