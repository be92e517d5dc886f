//! Reservation: whether every service would find a place if nodes failed now, each answer with its proof.
//!
//! [`check`] answers once; [`Watch`] keeps the answers for every single node up to date while the cluster changes.

mod arrange;
mod bits;
mod bound;
pub(crate) mod classes;
mod counting;
mod exact;
mod greedy;
mod judge;
mod lacks;
mod model;
#[cfg(test)]
pub(crate) mod tests;
mod trial;
mod unit;
mod watch;

pub use arrange::arrange;
pub use counting::counted;
pub use model::Model;
pub use watch::Watch;

use crate::view::View;
use ha_api_types::reason::Reason;
use std::collections::BTreeSet;

/// What is known about a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every service finds a place, and here it is.
    Survives(Proof),
    /// There is no such placement, and why that is certain.
    Fails(Failing),
    /// No placement was found, and none was proven impossible: what the best attempt left over.
    Unknown(Vec<Unplaced>),
}

/// Where everybody goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Services of the nodes that fail, and those that must go along with them, by name.
    pub moves: Vec<Move>,
    /// Services of lower priority that make room (`scheduler.preemption`), by name: each has a new place too.
    pub make_room: Vec<Move>,
}

/// One service of a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The service.
    pub service: String,
    /// Where it is.
    pub from: String,
    /// Where it would be.
    pub to: String,
}

/// A failure that is not survived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Why there is no placement.
    pub certificate: Certificate,
    /// Services that find no place.
    pub services: Vec<Unplaced>,
}

/// What proves that no placement exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// Each of the services named has no node, even with nothing else to be placed.
    NoNode,
    /// Services ask for more than the nodes that they may use have left.
    Capacity {
        /// Of what: NotEnoughCpu, NotEnoughMemory or NotEnoughDisk.
        reason: Reason,
        /// In a sentence, with amounts.
        message: String,
    },
    /// Services that must stay apart have too few nodes.
    Apart {
        /// In a sentence.
        message: String,
    },
    /// Every arrangement was looked at.
    Searched,
}

/// A service that finds no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unplaced {
    /// The service.
    pub service: String,
    /// Where it is.
    pub node: String,
    /// What speaks against nodes, the nearest to taking it first; a few of them.
    pub lacks: Vec<Lack>,
    /// Nodes that are not listed.
    pub more: usize,
}

/// What a service lacks on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The node.
    pub node: String,
    /// In a word.
    pub reason: Reason,
    /// In a sentence.
    pub message: String,
}

/// How much is done for one answer: candidates that are looked at in the search of all arrangements. What is undecided
/// after that is [`Verdict::Unknown`].
pub const EFFORT: u64 = 200_000;

/// Whether every service would find a place if these nodes failed now, all at once.
///
/// What counts: services that are wanted and run on these nodes (with `reservation.countStopped` also stopped ones, as if
/// they ran). Each needs a node that no hard limit and no strict rule refuses, in the state in which everybody has
/// arrived; all others stay where they are, but for those that must stay together with them, and with
/// `scheduler.preemption` for services of lower priority than somebody who arrives on their node, which then need another
/// place themselves.
///
/// Guarantees: deterministic. *Survives* comes with a placement that holds all that; *fails* only where it is certain.
pub fn check(view: &View, failure: &BTreeSet<String>) -> Verdict {
    Model::new(view).check(failure, EFFORT)
}
