//! The input of a plan, as one value.

use super::interface::Config;
use super::plan::{RebalanceState, Subject};
use super::world::ClusterView;
use ha_api_types::id::{NodeName, ResourceName, Term};
use ha_api_types::time::{MonotonicTime, Now};
use ha_store::election::{CandidateKey, CommitGaps};
use std::collections::{BTreeMap, BTreeSet};

/// Everything on which a plan depends. Equal inputs give equal plans.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// View of the cluster from which the plan is computed.
    pub cluster_view: &'a ClusterView,
    /// Clock readings at which the plan is made.
    pub now: &'a Now,
    /// Term of the leader.
    pub term: Term,
    /// Settings of the leader's process.
    pub config: &'a Config,
    /// Candidate key of the leader.
    pub candidate_key: CandidateKey,
    /// Times of the leader's commits.
    pub commit_gaps: &'a CommitGaps,
    /// Work of fence devices in this process, by node.
    pub devices: &'a BTreeMap<NodeName, super::fencing::devices::DeviceWork>,
    /// Results of the probes of fence devices.
    pub probes: &'a super::fencing::probes::DeviceProbes,
    /// Nodes that an unknown commit of this process may have closed: each counts both as closed and as not closed.
    pub possibly_closed: &'a BTreeSet<NodeName>,
    /// Imbalance of nodes. For the load: time since which each node has been above or below the mean. It counts only
    /// while the imbalance exceeds its threshold and no other action is in progress. For the number of services: time
    /// since which the node has had too many.
    pub imbalances: &'a BTreeMap<(ImbalanceKind, NodeName), Imbalance>,
    /// State of automatic rebalancing at the last plan.
    pub rebalance: &'a BTreeMap<ImbalanceKind, RebalanceState>,
    /// Nodes that services will use once the writes in progress are seen, by service.
    pub pending_uses: &'a BTreeMap<ResourceName, BTreeSet<NodeName>>,
    /// Subjects of writes in progress: they are not planned again before the write is seen.
    pub busy: &'a BTreeSet<Subject>,
    /// Result of the N+1 check; `None` if there is none yet.
    pub reservation: Option<&'a super::reservation::Finding>,
    /// Notifications that are being delivered.
    pub deliveries: &'a super::notifications::deliveries::Deliveries,
    /// Number of the next action uid of this term.
    pub next_uid: u64,
}

/// Property by which nodes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImbalanceKind {
    /// Load, compared with the mean.
    Load,
    /// Number of services, compared with the limit of the reservation settings.
    Services,
}

/// Position of a node relative to the mean or the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// `true` if the node is above the mean or the limit.
    pub is_above: bool,
    /// Start of the imbalance, on this process's clock.
    pub since: MonotonicTime,
}
