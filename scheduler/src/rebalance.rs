//! Moving running services to even the load of nodes: how uneven it is, and which one move helps most.
//!
//! Every move that is given here lowers the unevenness by a share of it, under the figures as they are: so moves end, and none is
//! taken back.

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

/// Of the moves that gain enough, so many are looked at more closely.
const MOST_LOOKED_AT: usize = 1000;

/// A move that evens the load.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The service.
    pub service: String,
    /// Where it is.
    pub from: String,
    /// Where it should go.
    pub to: String,
    /// How uneven the load is.
    pub before: f64,
    /// How uneven it will be.
    pub after: f64,
}

/// The load of the nodes that take part: online, not in maintenance, of known capacity.
///
/// A node's load is the mean of the shares of cpu and memory that are in use, by requests or as measured, as
/// `scheduler.mode` says, and with what is used outside; an amount whose capacity is not known is left out.
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
    /// As things are.
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

    /// The coefficient of variation: the standard deviation as a share of the mean; 0 when nothing is in use.
    pub fn unevenness(&self) -> f64 {
        self.variation(self.sum, self.squares)
    }

    /// Each node that takes part, and whether it carries more than the mean.
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

    /// The unevenness with a service moved, in constant time.
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

/// The mean of the shares of what is known.
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

/// The best move of one of these services between nodes for which `suits` holds, if one gains `margin` or more of the unevenness.
///
/// Moved is only what can be moved live and what no rule keeps with others, to a node that may take it, of a class that is not
/// lower, where no more preferences are missed, in the same node group: otherwise it would be moved back. With method BestScore it is the move after which the load is most even, with Topsis the one
/// whose outcome is best by the score of modes Static and Dynamic; ties go to the smaller service, then by name.
///
/// Guarantees: deterministic; the target's verdict is Allowed; `after` is at most `(1 − margin) × before`, and less than it.
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
            // What is lost by rounding is no gain.
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

/// Whether it runs, is at rest, and may be moved for this.
fn is_free(view: &View, name: &str, facts: &ServiceFacts) -> bool {
    stays(view, name, facts).is_none()
        && facts.movable
        && facts.uses.len() == 1
        && facts.maintenance_node.is_none()
}

/// Whether the target may take it, and it would stay there by itself. Where it is may be overfull by now: that speaks for the move.
fn is_allowed(view: &View, planned: &Move) -> bool {
    let Some((name, facts)) = view.services.get_key_value(&planned.service) else { return false };
    // Nobody goes along with what is moved for this.
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

/// Whether a node counts when load is evened: it is online and not in maintenance.
fn takes_part(node: &NodeFacts) -> bool {
    node.online.is_ok() && !node.maintenance
}

/// Why a service is never moved to even the load, in words; `None`: it may be.
pub fn stays(view: &View, name: &str, facts: &ServiceFacts) -> Option<&'static str> {
    if !facts.moves_live {
        return Some("its driver cannot move it live");
    }
    (!view.rules.companions(name).is_empty()).then_some("a rule keeps it with other services")
}

#[cfg(test)]
mod tests;
