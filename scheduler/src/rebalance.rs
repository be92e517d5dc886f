//! Rebalancing: the imbalance of the nodes' load, and the one move of a running service that lowers it most.
//!
//! Under unchanged load, each move lowers the imbalance by at least `margin` of its value. The sequence of moves therefore
//! ends, and no move is reversed.

pub mod overload;

use crate::asked::Asked;
use crate::place::{is_open, score_on};
use crate::score::NodeGroupRank;
use crate::topsis;
use crate::unit::Unit;
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::cluster::{RebalanceMethod, SchedulerMode};
use ha_api_types::quantity::{Amounts, Quantity};
use std::collections::BTreeSet;

/// Maximum number of moves, best first, that are checked for eligibility of the target.
const MOST_LOOKED_AT: usize = 1000;

/// A move that lowers the imbalance.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// Name of the service.
    pub service: String,
    /// Current node of the service.
    pub from: String,
    /// Target node.
    pub to: String,
    /// Imbalance before the move.
    pub before: f64,
    /// Imbalance after the move.
    pub after: f64,
}

/// The load of the nodes that take part: online, not in maintenance, and with known capacity.
///
/// The load of a node is the mean of its used shares of cpu and memory, from requests or measurements according to
/// `scheduler.mode`. It includes use outside hactl. An amount with unknown capacity is left out.
#[derive(Clone, Debug)]
pub struct Loads<'a> {
    mode: SchedulerMode,
    nodes: Vec<Loaded<'a>>,
    sum: f64,
    squares: f64,
}

#[derive(Clone, Debug)]
struct Loaded<'a> {
    name: &'a str,
    capacity: &'a Amounts,
    load: f64,
}

impl<'a> Loads<'a> {
    /// Computes the current load of all nodes that take part.
    pub fn of(view: &'a View) -> Loads<'a> {
        let mode = view.settings.mode;
        let mut nodes: Vec<Loaded<'a>> = view
            .nodes
            .iter()
            .filter(|(_, node)| takes_part(node))
            .filter_map(|(name, node)| {
                let load = share(&node.capacity, &node.reserved)?;
                Some(Loaded { name, capacity: &node.capacity, load })
            })
            .collect();
        for facts in view.services.values() {
            for node in &facts.uses {
                if let Ok(at) = nodes.binary_search_by(|loaded| loaded.name.cmp(node)) {
                    nodes[at].load += share(nodes[at].capacity, &facts.load(mode)).unwrap_or(0.0);
                }
            }
        }
        let sum = nodes.iter().map(|node| node.load).sum();
        let squares = nodes.iter().map(|node| node.load * node.load).sum();
        Loads { mode, nodes, sum, squares }
    }

    /// Returns the imbalance: the coefficient of variation of node load, that is, standard deviation divided by mean.
    /// Returns 0 if nothing is in use.
    pub fn unevenness(&self) -> f64 {
        self.variation(self.sum, self.squares)
    }

    /// Returns each node that takes part, and whether its load is above the mean.
    pub fn sides(&self) -> impl Iterator<Item = (&'a str, bool)> {
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

    /// Computes the imbalance after a move of a service, in constant time.
    fn moved(&self, facts: &ServiceFacts, from: usize, to: usize) -> f64 {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let amounts = facts.load(self.mode);
        let without = source.load - share(source.capacity, &amounts).unwrap_or(0.0);
        let with = target.load + share(target.capacity, &amounts).unwrap_or(0.0);
        let sum = self.sum - source.load - target.load + without + with;
        let squares = self.squares - source.load * source.load - target.load * target.load
            + without * without
            + with * with;
        self.variation(sum, squares)
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.nodes.binary_search_by(|loaded| loaded.name.cmp(name)).ok()
    }
}

/// Returns the mean of the used shares of the amounts with known capacity.
fn share(capacity: &Amounts, used: &Amounts) -> Option<f64> {
    let one = |capacity: Option<Quantity>, used: Option<Quantity>| {
        let capacity = capacity.filter(|capacity| capacity.milli() > 0)?;
        Some(used.unwrap_or_default().as_f64() / capacity.as_f64())
    };
    match (one(capacity.cpu, used.cpu), one(capacity.memory, used.memory)) {
        (Some(cpu), Some(memory)) => Some(f64::midpoint(cpu, memory)),
        (only, None) | (None, only) => only,
    }
}

/// Returns the best move of one of these services between nodes for which `suits` returns `true`. The move must lower
/// the imbalance by `margin` or more.
///
/// Only services that can be live-migrated and that no strict rule ties to others are moved. The target must be
/// eligible, in the same node group, and in no lower priority tier. It must not violate more preferred rules, otherwise
/// the service would move back.
///
/// Method BestScore chooses the move with the lowest imbalance after it. Method Topsis chooses the move with the best
/// outcome by the score of modes Static and Dynamic. Ties go to the smaller service, then by name.
///
/// Guarantees: deterministic; the verdict on the target is Allowed; `after` is at most `(1 − margin) × before`, and less
/// than `before`.
pub fn best_move(view: &View, services: &BTreeSet<&str>, suits: impl Fn(&str, &str) -> bool) -> Option<Move> {
    let loads = Loads::of(view);
    let before = loads.unevenness();
    let most = before * (1.0 - view.settings.auto_rebalance.margin);
    let mut found: Vec<(f64, f64, &str, usize, usize)> = Vec::new();
    for name in services {
        let Some((name, facts)) = view.services.get_key_value(*name) else { continue };
        let Some(from) = facts.node.as_deref().and_then(|node| loads.position(node)) else { continue };
        if !is_free(view, name, facts) {
            continue;
        }
        let size = share(loads.nodes[from].capacity, &facts.load(loads.mode)).unwrap_or(0.0);
        let here = loads.nodes[from].name;
        for to in (0..loads.nodes.len()).filter(|to| *to != from && suits(here, loads.nodes[*to].name)) {
            let after = loads.moved(facts, from, to);
            // A difference of rounding size is not a gain.
            if after <= most && after < before - 1e-9 {
                found.push((after, size, name, from, to));
            }
        }
    }
    found.sort_by(|one, other| {
        (one.0.total_cmp(&other.0))
            .then(one.1.total_cmp(&other.1))
            .then((one.2, one.4).cmp(&(other.2, other.4)))
    });
    found.truncate(MOST_LOOKED_AT);
    let moves = found.into_iter().map(|(after, _, name, from, to)| Move {
        service: name.to_owned(),
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

/// Returns `true` if the service runs, no action on it is in progress, and it may be moved for balance.
fn is_free(view: &View, name: &str, facts: &ServiceFacts) -> bool {
    stays(view, name, facts).is_none()
        && facts.movable
        && facts.uses.len() == 1
        && facts.maintenance_node.is_none()
}

/// Returns `true` if the target is eligible and the service would stay there. The current node may be over its limits,
/// which does not prevent the move.
fn is_allowed(view: &View, planned: &Move) -> bool {
    let Some((name, facts)) = view.services.get_key_value(&planned.service) else { return false };
    // `stays` has excluded services with partners, so the unit is the service alone.
    let unit = Unit::alone(name, facts);
    let asked = Asked::of(view, &unit);
    let (Some(from), Some(to)) = (asked.candidate(&planned.from), asked.candidate(&planned.to)) else {
        return false;
    };
    let (here, there) = (score_on(&asked, &from), score_on(&asked, &to));
    is_open(&asked, &to)
        && !there.failed_before
        && there.node_group == NodeGroupRank::Own
        && (there.class, there.preferences_missed) <= (here.class, here.preferences_missed)
}

/// Returns `true` if a node counts for the imbalance: it is online and not in maintenance.
fn takes_part(node: &NodeFacts) -> bool {
    node.online.is_ok() && !node.maintenance
}

/// Returns the reason for which a service is never moved for balance, as text; `None` if it may be moved.
pub fn stays(view: &View, name: &str, facts: &ServiceFacts) -> Option<&'static str> {
    if !facts.moves_live {
        return Some("driver does not support live migration");
    }
    (!view.rules.companions(name).is_empty()).then_some("service has strict affinity with other services")
}

#[cfg(test)]
mod tests;
