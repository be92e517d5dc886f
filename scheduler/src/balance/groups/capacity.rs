//! The number of further services of one size that fit: now, while every failover stays possible (N+1), and in tiers of
//! decreasing sizes.

use super::new_service::{GroupRefusal, NewService};
use super::other_groups::{most_frequent, placements, shortlists};
use super::tiers::{self, Tier};
use super::{failover, partition};
use crate::balance::model::Cluster;
use crate::balance::problem::{Placement, Problem, Settings};
use crate::balance::state::{BlockingReason, RequiredLimits, State};
use std::collections::BTreeMap;

/// Maximum number of services that are counted.
pub const MAX_COUNTED: usize = 100_000;

/// Capacity of one group for new services of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupCapacity {
    /// Position of the group in the cluster.
    pub group: usize,
    /// Reason for which the group cannot accept the service; `None` if it can.
    pub refusal: Option<GroupRefusal>,
    /// Services that fit within the limits.
    pub within_limits: FillResult,
    /// Services that fit while N+1 is kept. Every node must survive the failure of a peer, and shared services of any
    /// failed node must fit on other nodes.
    pub with_n_plus_one: FillResult,
    /// Reason for which N+1 does not hold even without further services; `None` if it holds.
    pub n_plus_one_failure: Option<NPlusOneFailure>,
    /// Services that fit without a violation of N+1: first of the requested size, then of smaller sizes.
    pub tiers: Vec<Tier>,
}

/// The reason why N+1 does not hold now, with nodes by position in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NPlusOneFailure {
    /// These nodes have too little memory for the instances that would fail over to them from another node.
    Reserve(Vec<usize>),
    /// If this node failed, not all of its shared services would fit on other nodes.
    Failover(usize),
}

/// Services that were placed one at a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FillResult {
    /// Primary and secondary of each service, by position in the cluster.
    pub placements: Vec<(usize, Option<usize>)>,
    /// The most frequent reason that blocks a node for one more service.
    pub blocking_reason: Option<BlockingReason>,
}

impl FillResult {
    /// Returns the number of placed services.
    pub fn count(&self) -> usize {
        self.placements.len()
    }
}

/// Computes the capacity of each group, in the order of the cluster. `tiered` is the size of the first tier; `None`
/// computes no tiers.
pub fn capacity(
    cluster: &Cluster,
    settings: &Settings,
    new_service: &NewService,
    tiered: Option<&NewService>,
) -> Vec<GroupCapacity> {
    partition::populated_groups(cluster)
        .map(|group| {
            if let Err(refusal) = new_service.check_policy(cluster, group) {
                let no_result = FillResult::default();
                return GroupCapacity {
                    group,
                    refusal: Some(refusal),
                    within_limits: no_result.clone(),
                    with_n_plus_one: no_result,
                    n_plus_one_failure: None,
                    tiers: Vec::new(),
                };
            }
            let problem = new_service.build_problem(cluster, group, settings);
            let n_plus_one_failure = find_n_plus_one_failure(&problem);
            let fill = |required| fill(cluster, settings, group, new_service, required, MAX_COUNTED);
            let within_limits = fill(RequiredLimits::Limits);
            let with_n_plus_one = if n_plus_one_failure.is_some() {
                FillResult::default()
            } else {
                fill(RequiredLimits::NPlusOne)
            };
            let tiers = match tiered {
                Some(first) if n_plus_one_failure.is_none() => tiers::tiers(cluster, settings, group, first),
                Some(_) | None => Vec::new(),
            };
            GroupCapacity { group, refusal: None, within_limits, with_n_plus_one, n_plus_one_failure, tiers }
        })
        .collect()
}

fn find_n_plus_one_failure(problem: &Problem) -> Option<NPlusOneFailure> {
    let mut state = State::new(problem, &problem.start_placements);
    let failing: Vec<usize> = (0..problem.nodes.len())
        .filter(|&node| state.fails_n1(node))
        .map(|node| problem.nodes[node].cluster_node)
        .collect();
    if !failing.is_empty() {
        return Some(NPlusOneFailure::Reserve(failing));
    }
    failover::first_fatal_failure(&mut state, &[])
        .map(|node| NPlusOneFailure::Failover(problem.nodes[node].cluster_node))
}

/// Places a new service in a group repeatedly while it fits, at most `limit` times.
pub(super) fn fill(
    cluster: &Cluster,
    settings: &Settings,
    group: usize,
    new_service: &NewService,
    required: RequiredLimits,
    limit: usize,
) -> FillResult {
    let problem = new_service.build_problem(cluster, group, settings);
    let mut state = State::new(&problem, &problem.start_placements);
    let (placed, reason) =
        fill_problem(&mut state, problem.services.len() - 1, required, limit.min(MAX_COUNTED));
    let cluster_node = |node: usize| problem.nodes[node].cluster_node;
    let nodes_of =
        |placement: &Placement| (cluster_node(placement.primary), placement.secondary.map(cluster_node));
    FillResult { placements: placed.iter().map(nodes_of).collect(), blocking_reason: reason }
}

/// Returns the placements of all placed services, and the most frequent shortage for one more.
fn fill_problem(
    state: &mut State<'_>,
    service: usize,
    required: RequiredLimits,
    limit: usize,
) -> (Vec<Placement>, Option<BlockingReason>) {
    let mut placed = Vec::new();
    let mut reason = None;
    while placed.len() < limit {
        match place_best(state, service, required) {
            Ok(placement) => placed.push(placement),
            Err(shortage) => {
                reason = shortage;
                break;
            }
        }
    }
    if required == RequiredLimits::Limits
        || failover::first_fatal_failure(state, &as_extra_services(service, &placed)).is_none()
    {
        return (placed, reason);
    }
    // With all these services, the cluster would not survive the failure of some node. A binary search finds how many
    // services to keep, and more are added one at a time.
    let (mut surviving_count, mut failing_count) = (0, placed.len());
    while failing_count - surviving_count > 1 {
        let middle = usize::midpoint(surviving_count, failing_count);
        placed[middle..].iter().for_each(|&placement| state.remove_added(service, placement));
        if failover::first_fatal_failure(state, &as_extra_services(service, &placed[..middle])).is_none() {
            surviving_count = middle;
        } else {
            failing_count = middle;
        }
        placed[middle..].iter().for_each(|&placement| state.add_unchecked(service, placement));
    }
    placed[surviving_count..].iter().for_each(|&placement| state.remove_added(service, placement));
    placed.truncate(surviving_count);
    while placed.len() < limit
        && let Some(placement) = place_survivably(state, service, &placed)
    {
        placed.push(placement);
    }
    (placed, Some(BlockingReason::Reserve))
}

fn as_extra_services(service: usize, placed: &[Placement]) -> Vec<(usize, Placement)> {
    placed.iter().map(|&placement| (service, placement)).collect()
}

/// Adds a service on a placement with which the cluster survives every failure.
fn place_survivably(state: &mut State<'_>, service: usize, placed: &[Placement]) -> Option<Placement> {
    let mut offers = scored_placements(state, service, &all_nodes(state), RequiredLimits::NPlusOne).ok()?;
    offers.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    let mut extra_services = as_extra_services(service, placed);
    for (_, placement) in offers {
        state.add_unchecked(service, placement);
        extra_services.push((service, placement));
        if failover::first_fatal_failure(state, &extra_services).is_none() {
            return Some(placement);
        }
        extra_services.pop();
        state.remove_added(service, placement);
    }
    None
}

fn all_nodes(state: &State<'_>) -> Vec<usize> {
    (0..state.problem().nodes.len()).collect()
}

/// Adds a service on the placement with the lowest resulting score.
fn place_best(
    state: &mut State<'_>,
    service: usize,
    required: RequiredLimits,
) -> Result<Placement, Option<BlockingReason>> {
    let mut reason = None;
    for nodes in shortlists(state, all_nodes(state)) {
        match scored_placements(state, service, &nodes, required) {
            Err(shortage) => reason = shortage,
            Ok(offers) => {
                let best_offer = offers
                    .into_iter()
                    .min_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
                if let Some((_, placement)) = best_offer {
                    state.add_unchecked(service, placement);
                    return Ok(placement);
                }
            }
        }
    }
    Err(reason)
}

/// Returns the placements for one more service with their scores, or the most frequent shortage.
fn scored_placements(
    state: &mut State<'_>,
    service: usize,
    nodes: &[usize],
    required: RequiredLimits,
) -> Result<Vec<(f64, Placement)>, Option<BlockingReason>> {
    let mut reasons: BTreeMap<BlockingReason, usize> = BTreeMap::new();
    let mut scored = Vec::new();
    for placement in placements(state.problem().services[service].reach, nodes) {
        match state.try_add(service, placement, required) {
            Ok(()) => {
                scored.push((state.score(), placement));
                state.remove_added(service, placement);
            }
            Err(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    if scored.is_empty() { Err(most_frequent(&reasons)) } else { Ok(scored) }
}
