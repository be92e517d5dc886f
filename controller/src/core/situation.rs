//! Everything that a plan is made from, as one value.

use super::interface::Config;
use super::plan::Subject;
use super::world::World;
use ha_api_types::record::Revision;
use ha_api_types::time::{Mono, Now};
use ha_store::election::{CommitClock, Membership};
use std::collections::{BTreeMap, BTreeSet};

/// What the leader looks at when it plans. The same situation gives the same plan.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The store.
    pub world: &'a World,
    /// The present.
    pub now: &'a Now,
    /// The leader's term.
    pub term: Revision,
    /// Who leads.
    pub config: &'a Config,
    /// Its candidate key.
    pub membership: Membership,
    /// When it committed.
    pub commits: &'a CommitClock,
    /// What its fence devices are doing, by node.
    pub devices: &'a BTreeMap<String, super::fencing::devices::DeviceWork>,
    /// Whether fence devices answer.
    pub probes: &'a super::fencing::probes::DeviceProbes,
    /// Nodes that an unknown commit of this process may have closed: they count as closed and as not closed.
    pub perhaps_closed: &'a BTreeSet<String>,
    /// Since when each node has carried more than the mean, or less, while the load was too uneven and nothing else went on; and
    /// since when it has had too many services.
    pub uneven: &'a BTreeMap<(Measure, String), Side>,
    /// Where services will be once the writes under way are seen: the nodes that each uses.
    pub placing: &'a BTreeMap<String, BTreeSet<String>>,
    /// What a write is under way about: it is not planned again before that is seen.
    pub busy: &'a BTreeSet<Subject>,
    /// What the reservation check found; `None`: nothing yet.
    pub reservation: Option<&'a super::reservation::Finding>,
    /// What is being delivered.
    pub deliveries: &'a super::notifications::deliveries::Deliveries,
    /// The number of the next action uid of this term.
    pub next_uid: u64,
}

/// What nodes are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Their load, against the mean.
    Load,
    /// How many services they have, against the limit of the reservation.
    Services,
}

/// On which side of the mean or limit a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// It carries more.
    pub above: bool,
    /// Since when, on this process's clock.
    pub since: Mono,
}
