//! Placements for an instance on some nodes, the best first, and the obstacles if there is none.

use super::all_groups::AllGroups;
use super::partition::{self, EntryBarrier};
use crate::balance::model::{Allocation, StorageReach};
use crate::balance::moves::intermediate_placements;
use crate::balance::plan::{Step, make_step};
use crate::balance::problem::Placement;
use crate::balance::state::{BlockingReason, State};
use std::collections::BTreeMap;
use std::fmt;

/// The obstacle that keeps an instance from a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// A barrier prevents the move of the instance to the group.
    EntryBarrier(EntryBarrier),
    /// The group itself is not healthy, or the plan empties it.
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
            Obstacle::EntryBarrier(barrier) => write!(formatter, "{barrier}"),
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
    pub service: usize,
    /// Each group with the obstacle that keeps the instance from it.
    pub obstacles: Vec<(usize, Obstacle)>,
}

impl NoEligibleGroup {
    /// Formats the obstacles, such as `g1: too little memory; g2: group is unallocable`.
    pub fn reasons(&self, all_groups: &AllGroups<'_>) -> String {
        let candidates = self
            .obstacles
            .iter()
            .map(|(group, obstacle)| format!("{}: {obstacle}", all_groups.cluster.groups[*group].name));
        let reason_texts: Vec<String> = candidates.collect();
        if reason_texts.is_empty() { "no other group".to_owned() } else { reason_texts.join("; ") }
    }
}

/// Number of nodes that are tried first; all nodes are tried if these lack capacity.
const SHORTLIST_SIZE: usize = 40;

pub(super) fn placements(reach: StorageReach, nodes: &[usize]) -> Vec<Placement> {
    match reach {
        StorageReach::Local | StorageReach::Shared => {
            nodes.iter().map(|&primary| Placement { primary, secondary: None }).collect()
        }
        StorageReach::Replicated => nodes
            .iter()
            .flat_map(|&primary| {
                let other_nodes = nodes.iter().filter(move |&&node| node != primary);
                other_nodes.map(move |&secondary| Placement { primary, secondary: Some(secondary) })
            })
            .collect(),
    }
}

/// Returns the lists of nodes to try in turn: if there are many, first those with the most spare memory, then all.
pub(super) fn shortlists(state: &State<'_>, nodes: Vec<usize>) -> Vec<Vec<usize>> {
    if nodes.len() <= SHORTLIST_SIZE {
        return vec![nodes];
    }
    let mut most_spare = nodes.clone();
    most_spare.sort_by(|&left, &right| {
        state.spare_memory_share(right).total_cmp(&state.spare_memory_share(left)).then(left.cmp(&right))
    });
    most_spare.truncate(SHORTLIST_SIZE);
    most_spare.sort_unstable();
    vec![most_spare, nodes]
}

/// Returns the placements on these nodes whose final state keeps the limits, or the most frequent shortage.
///
/// Placements with which every node survives the failure of a peer come first, each part by ascending score. Only an
/// instance that must leave an offline node may cause a node to fail N+1.
pub(super) fn ranked_placements(
    state: &mut State<'_>,
    service: usize,
    nodes: &[usize],
) -> Result<Vec<Placement>, Obstacle> {
    let from = state.placement(service);
    let mut scored_placements = Vec::new();
    let mut reasons: BTreeMap<BlockingReason, usize> = BTreeMap::new();
    for to in placements(state.problem().services[service].reach, nodes) {
        if to == from {
            continue;
        }
        match state.try_change(&[(service, to)]) {
            Ok(()) => {
                scored_placements.push((to.nodes().any(|node| state.fails_n1(node)), state.score(), to));
                state.restore(service, from);
            }
            Err(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    scored_placements.sort_by(|left, right| {
        left.0.cmp(&right.0).then(left.1.total_cmp(&right.1)).then(left.2.cmp(&right.2))
    });
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

/// Moves an instance to the best placement on these nodes that can be reached within the limits.
pub(super) fn move_within_limits(
    state: &mut State<'_>,
    service: usize,
    nodes: Vec<usize>,
) -> Result<Vec<Step>, Obstacle> {
    let mut obstacle = Obstacle::TooFewNodes;
    for nodes in shortlists(state, nodes) {
        match ranked_placements(state, service, &nodes) {
            Err(reason) => obstacle = reason,
            Ok(result) => {
                obstacle = Obstacle::NoRoute;
                for to in result {
                    if let Some(steps) = make_route(state, service, to) {
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
fn make_route(state: &mut State<'_>, service: usize, to: Placement) -> Option<Vec<Step>> {
    let from = state.placement(service);
    if let Some(only_step) = make_step(state, service, to) {
        return Some(vec![only_step]);
    }
    for middle in intermediate_placements(state.problem(), service, from, to) {
        let Some(first) = make_step(state, service, middle) else { continue };
        if let Some(second) = make_step(state, service, to) {
            return Some(vec![first, second]);
        }
        state.restore(service, from);
    }
    None
}

impl AllGroups<'_> {
    /// Returns the nodes of a group that accept new instances: online, and not failing N+1.
    pub(super) fn open_nodes(&self, state: &State<'_>, group: usize) -> Vec<usize> {
        let mut nodes = self.nodes_of(group);
        nodes.retain(|&node| !self.problem.nodes[node].is_offline && !state.fails_n1(node));
        nodes
    }

    /// Moves an instance to another group: Preferred before LastResort, never Unallocable, then to the placement with
    /// the lowest score. `is_open` returns `true` for the groups that may be chosen.
    pub(super) fn move_to_other_group(
        &self,
        state: &mut State<'_>,
        service: usize,
        is_open: &dyn Fn(usize) -> bool,
    ) -> Result<(usize, Vec<Step>), NoEligibleGroup> {
        let instance = self.problem.services[service].instance;
        let from = state.placement(service);
        let current_group = self.group_of(from.primary);
        let mut obstacles = Vec::new();
        for allocation in [Allocation::Preferred, Allocation::LastResort, Allocation::Unallocable] {
            let mut best: Option<(f64, usize, Placement, Vec<Step>)> = None;
            for group in self.groups() {
                if group == current_group || self.allocation(group) != allocation {
                    continue;
                }
                let nodes = self.open_nodes(state, group);
                let entry_check = self.check_entry(instance, group, is_open);
                let result = entry_check.and_then(|()| move_within_limits(state, service, nodes));
                match result {
                    Err(obstacle) => obstacles.push((group, obstacle)),
                    Ok(steps) => {
                        let (score, to) = (state.score(), state.placement(service));
                        state.restore(service, from);
                        if best.as_ref().is_none_or(|(best_score, ..)| score < *best_score) {
                            best = Some((score, group, to, steps));
                        }
                    }
                }
            }
            if let Some((_, group, to, steps)) = best {
                state.restore(service, to);
                return Ok((group, steps));
            }
        }
        Err(NoEligibleGroup { service, obstacles })
    }

    fn check_entry(
        &self,
        instance: usize,
        group: usize,
        is_open: &dyn Fn(usize) -> bool,
    ) -> Result<(), Obstacle> {
        if !self.inter_group_moves {
            return Err(Obstacle::EntryBarrier(EntryBarrier::InterGroupMoves));
        }
        partition::check_move(self.cluster, instance, group).map_err(Obstacle::EntryBarrier)?;
        if is_open(group) { Ok(()) } else { Err(Obstacle::Unhealthy) }
    }
}
