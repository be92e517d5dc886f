//! Relief of nodes that have more services than `reservation.overUtilization` allows.
//!
//! Each move takes a service from a node with more services to a node with fewer services. The sequence of moves
//! therefore ends, and no move is reversed.

use super::{Loads, Move, counts_for_balance, is_allowed, movable_unit, share};
use crate::view::View;
use ha_api_types::id::{NodeName, ResourceName};
use std::collections::BTreeSet;

/// Numbers of services on the nodes that count for the balance: online and not in maintenance.
#[derive(Clone, Debug)]
pub struct ServiceCounts<'a> {
    nodes: Vec<(&'a NodeName, usize)>,
    total: usize,
    /// Limit in percent of the even share.
    percent: usize,
}

impl<'a> ServiceCounts<'a> {
    /// Counts the services of all nodes that count for the balance.
    pub fn of(view: &'a View) -> ServiceCounts<'a> {
        let counted_nodes = view.nodes.iter().filter(|(_, node)| counts_for_balance(node));
        let count = |node: &NodeName| view.services.node_use(node).map_or(0, crate::services::NodeUse::count);
        let nodes: Vec<(&NodeName, usize)> = counted_nodes.map(|(name, _)| (name, count(name))).collect();
        let total = nodes.iter().map(|(_, count)| count).sum();
        let percent = usize::try_from(view.reservation.over_utilization).unwrap_or(usize::MAX);
        ServiceCounts { nodes, total, percent }
    }

    /// Returns each node that counts for the balance; `true` if it has too many services.
    pub fn nodes_by_side(&self) -> impl Iterator<Item = (&'a NodeName, bool)> {
        self.nodes.iter().map(|(name, count)| (*name, self.is_too_many(*count)))
    }

    /// Returns `true` if one more service would be too many on a node. A node that does not count has no limit.
    pub fn is_full(&self, node: &NodeName) -> bool {
        self.count(node).is_some_and(|count| self.is_too_many(count + 1))
    }

    /// Returns the number of services on a node; `None` if the node does not count for the balance.
    pub fn count(&self, node: &NodeName) -> Option<usize> {
        let index = self.nodes.binary_search_by(|(name, _)| (*name).cmp(node)).ok()?;
        Some(self.nodes[index].1)
    }

    /// Returns `true` if a number exceeds `overUtilization` percent of the even share. With an even share of 2 and 200 %,
    /// the fifth service is the first too many.
    fn is_too_many(&self, count: usize) -> bool {
        count.saturating_mul(self.nodes.len()).saturating_mul(100) > self.total.saturating_mul(self.percent)
    }

    /// Describes the number of services of a node and its limit.
    pub fn describe(&self, node: &NodeName) -> Option<String> {
        let count = self.count(node)?;
        let share = self.total as f64 / self.nodes.len() as f64;
        let limit = share * self.percent as f64 / 100.0;
        let verdict = if self.is_too_many(count) { "above" } else { "within" };
        Some(format!(
            "services on {node}: {count}, {verdict} the limit of {limit:.1} ({} % of the even share {share:.1})",
            self.percent
        ))
    }
}

/// Returns a move of one of these services that relieves a node with too many services.
///
/// The source is the node with the most services for which `is_suitable` returns `true`, and the target the node with
/// the fewest. The smallest service moves first, ties by name.
///
/// Only services that [`super::best_move`] could move are moved. With autoRebalance, the imbalance after the move is at
/// most its threshold, or the imbalance before the move.
///
/// Guarantees: deterministic; the verdict on the target is Allowed. After the move, the target has fewer services than the
/// source had before, and not too many.
pub fn relieve_crowded_node(
    view: &View,
    services: &BTreeSet<&ResourceName>,
    is_suitable: impl Fn(&NodeName) -> bool,
) -> Option<Move> {
    let counts = ServiceCounts::of(view);
    let loads = Loads::of(view);
    let before = loads.imbalance();
    let settings = &view.settings.auto_rebalance;
    let max_after = if settings.enabled { before.max(settings.threshold) } else { f64::INFINITY };
    let mut sources: Vec<(&NodeName, usize)> = counts
        .nodes
        .iter()
        .copied()
        .filter(|(name, count)| counts.is_too_many(*count) && is_suitable(name))
        .collect();
    sources.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut targets = counts.nodes.clone();
    targets.sort_by_key(|(_, count)| *count);
    for (from, source_count) in sources {
        let capacity = view.nodes.get(from).map(|node| node.capacity).unwrap_or_default();
        let mut users: Vec<(f64, &ResourceName)> = view
            .users_of(from)
            .filter(|(name, facts)| {
                services.contains(name)
                    && movable_unit(view, name, facts).is_some_and(|unit| unit.members.len() == 1)
            })
            .map(|(name, facts)| (share(&capacity, &facts.load(view.settings.mode)).unwrap_or(0.0), name))
            .collect();
        users.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(right.1)));
        let possible_targets =
            targets.iter().filter(|(_, count)| count + 1 < source_count && !counts.is_too_many(count + 1));
        for (to, _) in possible_targets {
            for (_, name) in &users {
                let Some(facts) = view.services.get(*name) else { continue };
                let after = match (loads.position(from), loads.position(to)) {
                    (Some(from), Some(to)) => loads.imbalance_after_move(&facts.load(loads.mode), from, to),
                    (_, None) | (None, _) => before,
                };
                let planned = Move {
                    service: (*name).to_owned(),
                    companions: Vec::new(),
                    from: from.to_owned(),
                    to: (*to).to_owned(),
                    before,
                    after,
                };
                if after <= max_after && is_allowed(view, &planned) {
                    return Some(planned);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
