//! The failover capacity (N+1) check: whether every service could be scheduled if nodes failed now, with a proof for each
//! answer.
//!
//! [`check`] computes one verdict. [`VerdictCache`] keeps the verdicts on the failure of each single node current
//! while the cluster changes.

mod bits;
mod blocked_nodes;
mod certificate;
mod counted_facts;
pub(crate) mod eligibility;
mod exact;
mod greedy;
mod joint_placement;
mod model;
mod placement_trial;
#[cfg(test)]
pub(crate) mod tests;
mod unit;
mod verdict;
mod verdict_cache;

pub use counted_facts::counted_facts;
pub use joint_placement::place_jointly;
pub use model::Model;
pub use verdict_cache::VerdictCache;

use crate::view::View;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use std::collections::BTreeSet;

/// The verdict on one failure of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every service can be scheduled, with the placement that proves it.
    Survives(Proof),
    /// No such placement exists, with the reason why that is certain.
    Fails(FailedCheck),
    /// The search found no placement, but did not prove that none exists. Contains the services without a node in the
    /// best attempt.
    Unknown(Vec<Unplaced>),
}

/// A placement of all affected services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Moves of the services on the failed nodes, and of those that must move with them, by name.
    pub moves: Vec<Move>,
    /// Moves of services of lower priority that are preempted (`scheduler.preemption`), by name. Each of them also has
    /// a new node.
    pub preempted: Vec<Move>,
}

/// The move of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Name of the service.
    pub service: ResourceName,
    /// Current node of the service.
    pub from: NodeName,
    /// Node of the service after the failure.
    pub to: NodeName,
}

/// The verdict on a failure after which some services cannot be scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCheck {
    /// Proof that no placement exists.
    pub certificate: Certificate,
    /// Services that cannot be scheduled.
    pub services: Vec<Unplaced>,
}

/// Proof that no placement exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// Each of the named services has no eligible node, even if no other service has to be scheduled.
    NoNode,
    /// The requests exceed the free amounts of the eligible nodes.
    Capacity {
        /// The exhausted amount: NotEnoughCpu, NotEnoughMemory or NotEnoughDisk.
        reason: Reason,
        /// One sentence with amounts.
        message: String,
    },
    /// Services with strict anti-affinity have too few nodes.
    AntiAffinity {
        /// One sentence.
        message: String,
    },
    /// The search has tried every arrangement.
    Exhausted,
}

/// A service that cannot be scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unplaced {
    /// Name of the service.
    pub service: ResourceName,
    /// Current node of the service.
    pub node: NodeName,
    /// Blocking reasons of a few nodes, the node closest to being eligible first.
    pub blocked_nodes: Vec<BlockedNode>,
    /// Number of nodes that `blocked_nodes` does not list.
    pub omitted: usize,
}

/// The reason why one node is not eligible for a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedNode {
    /// Name of the node.
    pub node: NodeName,
    /// Blocking reason as a word.
    pub reason: Reason,
    /// Blocking reason as a sentence.
    pub message: String,
}

/// Limit of the search for one answer: number of candidates that it examines. If the case is then undecided, the answer
/// is [`Verdict::Unknown`].
pub const MAX_SEARCH_STEPS: u64 = 200_000;

/// Checks whether every service could be scheduled if all these nodes failed now.
///
/// The check covers services that are desired and run on these nodes. With `reservation.countStopped`, stopped services
/// count as if they ran. Each of these services needs a node that no hard limit and no strict rule excludes, in the
/// state after all moves.
///
/// All other services stay on their nodes, with two exceptions:
///
/// - services that must stay together with a moved service;
/// - with `scheduler.preemption`, services of lower priority than a service that moves to their node. The preempted
///   services also need another node.
///
/// Guarantees: deterministic. *Survives* comes with a placement that meets all these conditions. *Fails* is returned
/// only if it is certain.
pub fn check(view: &View, failure: &BTreeSet<NodeName>) -> Verdict {
    Model::new(view).check(failure, MAX_SEARCH_STEPS)
}
