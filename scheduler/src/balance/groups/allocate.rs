//! Placements for a new service: all groups and nodes, the best first, with the reasons that block the others.

use super::new_service::{GroupRefusal, NewService};
use super::other_groups::{most_frequent, placements};
use super::partition;
use crate::balance::model::{Allocation, Cluster};
use crate::balance::problem::{Placement, Settings};
use crate::balance::state::{BlockingReason, RequiredLimits, State};
use std::collections::BTreeMap;

/// A group that could accept a new service.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupCandidate {
    /// Position of the group in the cluster.
    pub group: usize,
    /// Allocation policy of the group.
    pub allocation: Allocation,
    /// Reason for which the group cannot accept the service at all; `None` if it can.
    pub refusal: Option<GroupRefusal>,
    /// Nodes of the group as primaries: eligible ones by ascending score, then the others by name. Empty if `refusal` is
    /// set.
    pub nodes: Vec<NodeCandidate>,
}

impl GroupCandidate {
    /// Returns the best nodes in the group.
    pub fn best(&self) -> Option<&ScoredSecondary> {
        self.nodes.first().and_then(|node| node.best.as_ref().ok())
    }
}

/// A node as the primary of a new service.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeCandidate {
    /// Position of the node in the cluster.
    pub node: usize,
    /// The best secondary for this primary, or the reason why the node cannot be the primary.
    pub best: Result<ScoredSecondary, PrimaryBlockingReason>,
}

/// The secondary for a new service with a given primary, with the resulting score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoredSecondary {
    /// Node of the second copy, by position in the cluster; `None` if there is only one copy.
    pub secondary: Option<usize>,
    /// Score of the group with the service.
    pub score: f64,
}

/// The reason why a node cannot be the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimaryBlockingReason {
    /// The node itself has too little capacity, or a limit of it would be exceeded.
    Node(BlockingReason),
    /// No other node fits the second copy. Contains the most frequent shortage, or `None` if there is no other node.
    Secondary(Option<BlockingReason>),
}

impl std::fmt::Display for PrimaryBlockingReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PrimaryBlockingReason::Node(reason) => write!(formatter, "{reason}"),
            PrimaryBlockingReason::Secondary(None) => {
                formatter.write_str("no other node for the second copy")
            }
            PrimaryBlockingReason::Secondary(Some(reason)) => {
                write!(formatter, "no node for the second copy: {reason}")
            }
        }
    }
}

/// Ranks all groups for a new service: groups with policy Preferred before LastResort, then by ascending score. Groups
/// without an eligible node are last.
pub fn allocate(cluster: &Cluster, settings: &Settings, new_service: &NewService) -> Vec<GroupCandidate> {
    let mut candidates: Vec<GroupCandidate> = partition::populated_groups(cluster)
        .map(|group| evaluate_group(cluster, settings, new_service, group))
        .collect();
    let policy_rank = |allocation: Allocation| match allocation {
        Allocation::Preferred => 0,
        Allocation::LastResort => 1,
        Allocation::Unallocable => 2,
    };
    candidates.sort_by(|left, right| {
        let key =
            |candidate: &GroupCandidate| (candidate.best().is_none(), policy_rank(candidate.allocation));
        let score = |candidate: &GroupCandidate| candidate.best().map_or(0.0, |scored| scored.score);
        key(left)
            .cmp(&key(right))
            .then(score(left).total_cmp(&score(right)))
            .then(cluster.groups[left.group].name.cmp(&cluster.groups[right.group].name))
    });
    candidates
}

fn evaluate_group(
    cluster: &Cluster,
    settings: &Settings,
    new_service: &NewService,
    group: usize,
) -> GroupCandidate {
    let refusal = new_service.check_policy(cluster, group).err();
    let nodes =
        if refusal.is_some() { Vec::new() } else { evaluate_nodes(cluster, settings, new_service, group) };
    GroupCandidate { group, allocation: cluster.groups[group].allocation, refusal, nodes }
}

fn evaluate_nodes(
    cluster: &Cluster,
    settings: &Settings,
    new_service: &NewService,
    group: usize,
) -> Vec<NodeCandidate> {
    let problem = new_service.build_problem(cluster, group, settings);
    let service = problem.services.len() - 1;
    let mut state = State::new(&problem, &problem.start_placements);
    let required =
        if settings.ignore_soft_errors { RequiredLimits::Limits } else { RequiredLimits::NPlusOne };
    let problem_nodes: Vec<usize> = (0..problem.nodes.len()).collect();
    let mut best: Vec<Option<ScoredSecondary>> = vec![None; problem_nodes.len()];
    let mut reasons: Vec<BTreeMap<BlockingReason, usize>> = vec![BTreeMap::new(); problem_nodes.len()];
    for placement in placements(problem.services[service].reach, &problem_nodes) {
        match state.try_add(service, placement, required) {
            Ok(()) => {
                let score = state.score();
                state.remove_added(service, placement);
                let best = &mut best[placement.primary];
                if best.is_none_or(|best| score < best.score) {
                    let secondary =
                        placement.secondary.map(|problem_node| problem.nodes[problem_node].cluster_node);
                    *best = Some(ScoredSecondary { secondary, score });
                }
            }
            Err(reason) => *reasons[placement.primary].entry(reason).or_default() += 1,
        }
    }
    let mut nodes: Vec<NodeCandidate> = problem_nodes
        .iter()
        .map(|&problem_node| {
            let best = best[problem_node].ok_or_else(|| {
                let primary_only = Placement { primary: problem_node, secondary: None };
                if let Err(reason) = state.try_add(service, primary_only, required) {
                    return PrimaryBlockingReason::Node(reason);
                }
                state.remove_added(service, primary_only);
                PrimaryBlockingReason::Secondary(most_frequent(&reasons[problem_node]))
            });
            NodeCandidate { node: problem.nodes[problem_node].cluster_node, best }
        })
        .collect();
    nodes.sort_by(|left, right| {
        let score = |node: &NodeCandidate| node.best.map_or(f64::INFINITY, |scored| scored.score);
        let name = |node: &NodeCandidate| &cluster.nodes[node.node].name;
        score(left).total_cmp(&score(right)).then(name(left).cmp(name(right)))
    });
    nodes
}
