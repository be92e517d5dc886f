//! Nodes with more services than their share, and the move that relieves one of them (`reservation.overUtilization`).
//!
//! Every move that is given here takes a service from a node with more to one with fewer: so moves end, and none is taken back.

use super::{Loads, Move, is_allowed, is_free, share, takes_part};
use crate::view::View;
use std::collections::BTreeSet;

/// How many services the nodes that take part have: online, not in maintenance.
#[derive(Clone, Debug)]
pub struct Counts<'a> {
    nodes: Vec<(&'a str, usize)>,
    total: usize,
    /// What is too much, in percent of the even share.
    percent: usize,
}

impl<'a> Counts<'a> {
    /// As things are.
    pub fn of(view: &'a View) -> Counts<'a> {
        let taking_part = view.nodes.iter().filter(|(_, node)| takes_part(node));
        let count = |node: &str| view.services.on(node).map_or(0, crate::services::NodeUse::count);
        let nodes: Vec<(&str, usize)> = taking_part.map(|(name, _)| (name.as_str(), count(name))).collect();
        let total = nodes.iter().map(|(_, count)| count).sum();
        let percent = usize::try_from(view.reservation.over_utilization).unwrap_or(usize::MAX);
        Counts { nodes, total, percent }
    }

    /// Each node that takes part, and whether it has too many.
    pub fn sides(&self) -> impl Iterator<Item = (&'a str, bool)> {
        self.nodes.iter().map(|(name, count)| (*name, self.is_too_many(*count)))
    }

    /// Whether one more would be too many on a node; a node that takes no part has no limit.
    pub fn is_full(&self, node: &str) -> bool {
        self.count(node).is_some_and(|count| self.is_too_many(count + 1))
    }

    /// How many services a node has that takes part.
    pub fn count(&self, node: &str) -> Option<usize> {
        let at = self.nodes.binary_search_by(|(name, _)| (*name).cmp(node)).ok()?;
        Some(self.nodes[at].1)
    }

    /// More than `overUtilization` of the even share: with an even share of 2 and 200 % the fifth is the first.
    fn is_too_many(&self, count: usize) -> bool {
        count.saturating_mul(self.nodes.len()).saturating_mul(100) > self.total.saturating_mul(self.percent)
    }

    /// What a node has and what is too much, in words.
    pub fn told(&self, node: &str) -> Option<String> {
        let count = self.count(node)?;
        let share = self.total as f64 / self.nodes.len() as f64;
        let limit = share * self.percent as f64 / 100.0;
        let verdict = if self.is_too_many(count) { "too many" } else { "not too many" };
        Some(format!(
            "{node} has {count} services, {verdict}: the limit is {limit:.1}, {} % of the even share {share:.1}",
            self.percent
        ))
    }
}

/// The move of one of these services that relieves a node with too many, if there is one: from the node with the most of those for
/// which `suits` holds to the one with the fewest, the smallest service first, ties by name.
///
/// Moved is only what [`super::best_move`] would move too. With autoRebalance the load becomes no more uneven than its threshold
/// permits, or than it is.
///
/// Guarantees: deterministic; the target's verdict is Allowed, and it has fewer services afterwards than the other had before, and not
/// too many.
pub fn relieve(view: &View, services: &BTreeSet<&str>, suits: impl Fn(&str) -> bool) -> Option<Move> {
    let counts = Counts::of(view);
    let loads = Loads::of(view);
    let before = loads.unevenness();
    let settings = &view.settings.auto_rebalance;
    let most = if settings.enabled { before.max(settings.threshold) } else { f64::INFINITY };
    let mut sources: Vec<(&str, usize)> = counts
        .nodes
        .iter()
        .copied()
        .filter(|(name, count)| counts.is_too_many(*count) && suits(name))
        .collect();
    sources.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut targets = counts.nodes.clone();
    targets.sort_by_key(|(_, count)| *count);
    for (from, had) in sources {
        let capacity = view.nodes.get(from).map(|node| node.capacity).unwrap_or_default();
        let mut users: Vec<(f64, &str)> = view
            .users_of(from, "")
            .filter(|(name, facts)| services.contains(name) && is_free(view, name, facts))
            .map(|(name, facts)| (share(&capacity, &facts.load(view.settings.mode)).unwrap_or(0.0), name))
            .collect();
        users.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(other.1)));
        let roomy = targets.iter().filter(|(_, count)| count + 1 < had && !counts.is_too_many(count + 1));
        for (to, _) in roomy {
            for (_, name) in &users {
                let Some(facts) = view.services.get(*name) else { continue };
                let after = match (loads.position(from), loads.position(to)) {
                    (Some(from), Some(to)) => loads.moved(facts, from, to),
                    (_, None) | (None, _) => before,
                };
                let planned = Move {
                    service: (*name).to_owned(),
                    from: from.to_owned(),
                    to: (*to).to_owned(),
                    before,
                    after,
                };
                if after <= most && is_allowed(view, &planned) {
                    return Some(planned);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
