//! Placements for an instance on some nodes, the best first, and the obstacles if there is none.

use super::all_groups::AllGroups;
use super::partition::{self, Barrier};
use crate::balance::model::{Allocation, Reach};
use crate::balance::moves::intermediate_placements;
use crate::balance::plan::{Step, step};
use crate::balance::problem::Placement;
use crate::balance::state::{BlockingReason, State};
use std::collections::BTreeMap;
use std::fmt;

/// The obstacle that keeps an instance from a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// A barrier prevents the move of the instance to the group.
    Barrier(Barrier),
    /// The group itself is not healthy, or is to be emptied.
    Unhealthy,
    /// The most frequent shortage of the group's nodes.
    BlockingReason(BlockingReason),
    /// The group has capacity, but no sequence of operations moves the instance to it within the limits.
    NoRoute,
    /// The group has fewer nodes than the instance needs copies.
    TooFewNodes,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Barrier(barrier) => write!(formatter, "{barrier}"),
            Obstacle::Unhealthy => formatter.write_str("group is not healthy"),
            Obstacle::BlockingReason(reason) => write!(formatter, "{reason}"),
            Obstacle::NoRoute => formatter.write_str("no sequence of moves keeps the limits at every step"),
            Obstacle::TooFewNodes => formatter.write_str("too few working nodes"),
        }
    }
}

/// An instance that fits in no other group, with the obstacle of each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoEligibleGroup {
    /// Index of the instance in the problem.
    pub guest: usize,
    /// Each group with the obstacle that keeps the instance from it.
    pub obstacles: Vec<(usize, Obstacle)>,
}

impl NoEligibleGroup {
    /// Formats the obstacles, such as `g1: too little memory; g2: group is unallocable`.
    pub fn reasons(&self, all_groups: &AllGroups<'_>) -> String {
        let each = self
            .obstacles
            .iter()
            .map(|(group, obstacle)| format!("{}: {obstacle}", all_groups.cluster.groups[*group].name));
        let reason_texts: Vec<String> = each.collect();
        if reason_texts.is_empty() { "no other group".to_owned() } else { reason_texts.join("; ") }
    }
}

/// Number of nodes that are tried first; all nodes are tried if these lack capacity.
const SHORTLIST_SIZE: usize = 40;

/// Returns every placement on these hosts.
pub(super) fn placements(reach: Reach, hosts: &[usize]) -> Vec<Placement> {
    match reach {
        Reach::Local | Reach::Shared => {
            hosts.iter().map(|&primary| Placement { primary, secondary: None }).collect()
        }
        Reach::Replicated => hosts
            .iter()
            .flat_map(|&primary| {
                let other_hosts = hosts.iter().filter(move |&&host| host != primary);
                other_hosts.map(move |&secondary| Placement { primary, secondary: Some(secondary) })
            })
            .collect(),
    }
}

/// Returns the lists of hosts to try in turn: if there are many, first those with the most spare memory, then all.
pub(super) fn shortlists(state: &State<'_>, hosts: Vec<usize>) -> Vec<Vec<usize>> {
    if hosts.len() <= SHORTLIST_SIZE {
        return vec![hosts];
    }
    let mut most_spare = hosts.clone();
    most_spare.sort_by(|&one, &other| {
        state.spare_memory_share(other).total_cmp(&state.spare_memory_share(one)).then(one.cmp(&other))
    });
    most_spare.truncate(SHORTLIST_SIZE);
    most_spare.sort_unstable();
    vec![most_spare, hosts]
}

/// Returns the placements on these hosts whose final state keeps the limits, or the most frequent shortage.
///
/// Placements with which every node survives the failure of a peer come first, each part by ascending score. Only an
/// instance that must leave an offline node may cause a node to fail N+1.
pub(super) fn ranked_placements(
    state: &mut State<'_>,
    guest: usize,
    hosts: &[usize],
) -> Result<Vec<Placement>, Obstacle> {
    let from = state.placement(guest);
    let mut scored_placements = Vec::new();
    let mut reasons: BTreeMap<BlockingReason, usize> = BTreeMap::new();
    for to in placements(state.problem().guests[guest].reach, hosts) {
        if to == from {
            continue;
        }
        match state.try_change(&[(guest, to)]) {
            Ok(()) => {
                scored_placements.push((to.nodes().any(|host| state.fails_n1(host)), state.score(), to));
                state.restore(guest, from);
            }
            Err(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    scored_placements
        .sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)).then(one.2.cmp(&other.2)));
    if scored_placements.is_empty() {
        return Err(most_frequent(&reasons).map_or(Obstacle::TooFewNodes, Obstacle::BlockingReason));
    }
    Ok(scored_placements.into_iter().map(|(_, _, to)| to).collect())
}

/// Returns the most frequent shortage.
pub(super) fn most_frequent(reasons: &BTreeMap<BlockingReason, usize>) -> Option<BlockingReason> {
    reasons
        .iter()
        .max_by_key(|(reason, count)| (**count, std::cmp::Reverse(**reason)))
        .map(|(reason, _)| *reason)
}

/// Moves an instance to the best placement on these hosts that can be reached within the limits.
pub(super) fn move_within_limits(
    state: &mut State<'_>,
    guest: usize,
    hosts: Vec<usize>,
) -> Result<Vec<Step>, Obstacle> {
    let mut obstacle = Obstacle::TooFewNodes;
    for hosts in shortlists(state, hosts) {
        match ranked_placements(state, guest, &hosts) {
            Err(reason) => obstacle = reason,
            Ok(result) => {
                obstacle = Obstacle::NoRoute;
                for to in result {
                    if let Some(steps) = route(state, guest, to) {
                        return Ok(steps);
                    }
                }
            }
        }
    }
    Err(obstacle)
}

/// Moves an instance to a placement: in one step, or in two through a placement that shares a node with both. If
/// no route is possible, the state is unchanged.
fn route(state: &mut State<'_>, guest: usize, to: Placement) -> Option<Vec<Step>> {
    let from = state.placement(guest);
    if let Some(only) = step(state, guest, to) {
        return Some(vec![only]);
    }
    for middle in intermediate_placements(state.problem(), guest, from, to) {
        let Some(first) = step(state, guest, middle) else { continue };
        if let Some(second) = step(state, guest, to) {
            return Some(vec![first, second]);
        }
        state.restore(guest, from);
    }
    None
}

impl AllGroups<'_> {
    /// Returns the hosts of a group that accept new instances: online, and not failing N+1.
    pub(super) fn open_hosts(&self, state: &State<'_>, group: usize) -> Vec<usize> {
        let mut hosts = self.hosts(group);
        hosts.retain(|&host| !self.problem.hosts[host].offline && !state.fails_n1(host));
        hosts
    }

    /// Moves an instance to another group: Preferred before LastResort, never Unallocable, then to the placement with
    /// the lowest score. `is_open` returns `true` for the groups that may be chosen.
    pub(super) fn move_to_other_group(
        &self,
        state: &mut State<'_>,
        guest: usize,
        is_open: &dyn Fn(usize) -> bool,
    ) -> Result<(usize, Vec<Step>), NoEligibleGroup> {
        let instance = self.problem.guests[guest].instance;
        let from = state.placement(guest);
        let current_group = self.group_of(from.primary);
        let mut obstacles = Vec::new();
        for allocation in [Allocation::Preferred, Allocation::LastResort, Allocation::Unallocable] {
            let mut best: Option<(f64, usize, Placement, Vec<Step>)> = None;
            for group in self.groups() {
                if group == current_group || self.allocation(group) != allocation {
                    continue;
                }
                let hosts = self.open_hosts(state, group);
                let entered = self.check_entry(instance, group, is_open);
                let result = entered.and_then(|()| move_within_limits(state, guest, hosts));
                match result {
                    Err(obstacle) => obstacles.push((group, obstacle)),
                    Ok(steps) => {
                        let (score, to) = (state.score(), state.placement(guest));
                        state.restore(guest, from);
                        if best.as_ref().is_none_or(|(best_score, ..)| score < *best_score) {
                            best = Some((score, group, to, steps));
                        }
                    }
                }
            }
            if let Some((_, group, to, steps)) = best {
                state.restore(guest, to);
                return Ok((group, steps));
            }
        }
        Err(NoEligibleGroup { guest, obstacles })
    }

    fn check_entry(
        &self,
        instance: usize,
        group: usize,
        is_open: &dyn Fn(usize) -> bool,
    ) -> Result<(), Obstacle> {
        if !self.inter_group_moves {
            return Err(Obstacle::Barrier(Barrier::InterGroupMoves));
        }
        partition::check_move(self.cluster, instance, group).map_err(Obstacle::Barrier)?;
        if is_open(group) { Ok(()) } else { Err(Obstacle::Unhealthy) }
    }
}
