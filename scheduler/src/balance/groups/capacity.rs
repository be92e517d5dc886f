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

/// The capacity of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupCapacity {
    /// Position of the group in the cluster.
    pub group: usize,
    /// Reason for which the group cannot accept the service; `None` if it can.
    pub refused: Option<GroupRefusal>,
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
    partition::populated(cluster)
        .map(|group| {
            if let Err(refused) = new_service.check_policy(cluster, group) {
                let no_result = FillResult::default();
                return GroupCapacity {
                    group,
                    refused: Some(refused),
                    within_limits: no_result.clone(),
                    with_n_plus_one: no_result,
                    n_plus_one_failure: None,
                    tiers: Vec::new(),
                };
            }
            let problem = new_service.problem(cluster, group, settings);
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
            GroupCapacity { group, refused: None, within_limits, with_n_plus_one, n_plus_one_failure, tiers }
        })
        .collect()
}

fn find_n_plus_one_failure(problem: &Problem) -> Option<NPlusOneFailure> {
    let mut state = State::new(problem, &problem.start);
    let failing: Vec<usize> = (0..problem.hosts.len())
        .filter(|&host| state.fails_n1(host))
        .map(|host| problem.hosts[host].node)
        .collect();
    if !failing.is_empty() {
        return Some(NPlusOneFailure::Reserve(failing));
    }
    failover::first_fatal_failure(&mut state, &[])
        .map(|host| NPlusOneFailure::Failover(problem.hosts[host].node))
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
    let problem = new_service.problem(cluster, group, settings);
    let mut state = State::new(&problem, &problem.start);
    let (placed, reason) =
        fill_problem(&mut state, problem.guests.len() - 1, required, limit.min(MAX_COUNTED));
    let node = |host: usize| problem.hosts[host].node;
    let nodes_of = |placement: &Placement| (node(placement.primary), placement.secondary.map(node));
    FillResult { placements: placed.iter().map(nodes_of).collect(), blocking_reason: reason }
}

/// Returns the placements of all placed guests, and the most frequent shortage for one more.
fn fill_problem(
    state: &mut State<'_>,
    guest: usize,
    required: RequiredLimits,
    limit: usize,
) -> (Vec<Placement>, Option<BlockingReason>) {
    let mut placed = Vec::new();
    let mut reason = None;
    while placed.len() < limit {
        match place_best(state, guest, required) {
            Ok(placement) => placed.push(placement),
            Err(none) => {
                reason = none;
                break;
            }
        }
    }
    if required == RequiredLimits::Limits
        || failover::first_fatal_failure(state, &as_extra_guests(guest, &placed)).is_none()
    {
        return (placed, reason);
    }
    // With all these guests, the cluster would not survive the failure of some node. A binary search finds how many
    // guests to keep, and more are added one at a time.
    let (mut survives, mut fails) = (0, placed.len());
    while fails - survives > 1 {
        let middle = usize::midpoint(survives, fails);
        placed[middle..].iter().for_each(|&placement| state.remove_added(guest, placement));
        if failover::first_fatal_failure(state, &as_extra_guests(guest, &placed[..middle])).is_none() {
            survives = middle;
        } else {
            fails = middle;
        }
        placed[middle..].iter().for_each(|&placement| state.add_unchecked(guest, placement));
    }
    placed[survives..].iter().for_each(|&placement| state.remove_added(guest, placement));
    placed.truncate(survives);
    while placed.len() < limit
        && let Some(placement) = place_survivably(state, guest, &placed)
    {
        placed.push(placement);
    }
    (placed, Some(BlockingReason::Reserve))
}

fn as_extra_guests(guest: usize, placed: &[Placement]) -> Vec<(usize, Placement)> {
    placed.iter().map(|&placement| (guest, placement)).collect()
}

/// Adds a guest on a placement with which the cluster survives every failure.
fn place_survivably(state: &mut State<'_>, guest: usize, placed: &[Placement]) -> Option<Placement> {
    let mut offers = scored_placements(state, guest, &all(state), RequiredLimits::NPlusOne).ok()?;
    offers.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let mut extra_guests = as_extra_guests(guest, placed);
    for (_, placement) in offers {
        state.add_unchecked(guest, placement);
        extra_guests.push((guest, placement));
        if failover::first_fatal_failure(state, &extra_guests).is_none() {
            return Some(placement);
        }
        extra_guests.pop();
        state.remove_added(guest, placement);
    }
    None
}

fn all(state: &State<'_>) -> Vec<usize> {
    (0..state.problem().hosts.len()).collect()
}

/// Adds a guest on the placement with the lowest resulting score.
fn place_best(
    state: &mut State<'_>,
    guest: usize,
    required: RequiredLimits,
) -> Result<Placement, Option<BlockingReason>> {
    let mut reason = None;
    for hosts in shortlists(state, all(state)) {
        match scored_placements(state, guest, &hosts, required) {
            Err(none) => reason = none,
            Ok(offers) => {
                let best_offer = offers
                    .into_iter()
                    .min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
                if let Some((_, placement)) = best_offer {
                    state.add_unchecked(guest, placement);
                    return Ok(placement);
                }
            }
        }
    }
    Err(reason)
}

/// Returns the placements for one more guest with their scores, or the most frequent shortage.
fn scored_placements(
    state: &mut State<'_>,
    guest: usize,
    hosts: &[usize],
    required: RequiredLimits,
) -> Result<Vec<(f64, Placement)>, Option<BlockingReason>> {
    let mut reasons: BTreeMap<BlockingReason, usize> = BTreeMap::new();
    let mut scored = Vec::new();
    for placement in placements(state.problem().guests[guest].reach, hosts) {
        match state.try_add(guest, placement, required) {
            Ok(()) => {
                scored.push((state.score(), placement));
                state.remove_added(guest, placement);
            }
            Err(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    if scored.is_empty() { Err(most_frequent(&reasons)) } else { Ok(scored) }
}
