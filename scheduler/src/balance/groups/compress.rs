//! Emptying of a group whose instances fit into other groups.

use super::all_groups::{AllGroups, ExclusionReason, PlannedMove};
use super::other_groups::NoEligibleGroup;
use super::partition;
use crate::balance::model::Allocation;
use crate::balance::state::{Amount, BlockingReason, State};

/// A group that could be emptied.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Position of the group in the cluster.
    pub group: usize,
    /// Amounts that the instances of the group use.
    pub used: Amount,
    /// Free amounts of those nodes of the group that accept instances.
    pub free: FreeCapacity,
    /// Free amounts of the groups to which the instances could move.
    pub free_elsewhere: FreeCapacity,
    /// Result of the attempt to empty the group.
    pub verdict: Verdict,
}

/// Free amounts of several nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FreeCapacity {
    /// Sum of the free amounts.
    pub amount: Amount,
    /// The nodes, by position in the cluster.
    pub nodes: Vec<usize>,
}

/// The result of the attempt to empty a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The group has no instances.
    Empty,
    /// No instance can leave the group.
    Excluded(ExclusionReason),
    /// The instances use more of this amount than is free elsewhere.
    TooMuch(BlockingReason),
    /// An instance fits on no node elsewhere.
    NoEligibleGroup(NoEligibleGroup),
    /// These moves empty the group.
    CanBeEmptied(Vec<PlannedMove>),
}

/// Evaluates every group as a candidate, in the order of the cluster.
pub fn compress(all_groups: &AllGroups<'_>) -> Vec<Candidate> {
    let state = State::new(&all_groups.problem, &all_groups.problem.start_placements);
    all_groups.groups().into_iter().map(|group| evaluate_group(all_groups, &state, group)).collect()
}

/// Returns the candidate that frees the most nodes, then the most memory.
pub fn best<'c>(
    all_groups: &AllGroups<'_>,
    candidates: &'c [Candidate],
) -> Option<(&'c Candidate, &'c [PlannedMove])> {
    let emptiable = candidates.iter().filter_map(|candidate| match &candidate.verdict {
        Verdict::CanBeEmptied(moved) => Some((candidate, moved.as_slice())),
        Verdict::Empty | Verdict::Excluded(_) | Verdict::TooMuch(_) | Verdict::NoEligibleGroup(_) => None,
    });
    let freed = |group: usize| {
        let nodes = all_groups.nodes_of(group);
        let memory: i64 = nodes
            .iter()
            .map(|&node| all_groups.cluster.nodes[all_groups.problem.nodes[node].cluster_node].memory_total)
            .sum();
        (nodes.len(), memory)
    };
    emptiable.max_by_key(|(candidate, _)| (freed(candidate.group), std::cmp::Reverse(candidate.group)))
}

fn evaluate_group(all_groups: &AllGroups<'_>, state: &State<'_>, group: usize) -> Candidate {
    let services = all_groups.instances_using(state, group);
    let targets: Vec<usize> = if all_groups.inter_group_moves {
        partition::connected_groups(all_groups.cluster, group)
            .into_iter()
            .filter(|&other| all_groups.allocation(other) != Allocation::Unallocable)
            .collect()
    } else {
        Vec::new()
    };
    let used = used_amount(all_groups, state, group);
    let free_elsewhere = free_capacity(all_groups, state, &targets);
    let verdict = if services.is_empty() {
        Verdict::Empty
    } else if let Some(reason) = all_groups.exclusion_reason(group) {
        Verdict::Excluded(reason)
    } else if let Some(lack) = first_exceeded(used, free_elsewhere.amount) {
        Verdict::TooMuch(lack)
    } else {
        empty_group(all_groups, state, &services).map_or_else(Verdict::NoEligibleGroup, Verdict::CanBeEmptied)
    };
    Candidate { group, used, free: free_capacity(all_groups, state, &[group]), free_elsewhere, verdict }
}

/// Sums up the amounts that instances use on the nodes of a group.
fn used_amount(all_groups: &AllGroups<'_>, state: &State<'_>, group: usize) -> Amount {
    let mut sum = Amount::default();
    for (service, placement) in all_groups.problem.services.iter().zip(state.placements()) {
        if all_groups.group_of(placement.primary) == group {
            sum = sum + Amount { memory: service.memory_used, disk: service.disk_used, vcpus: service.vcpus };
        }
        if placement.secondary.is_some_and(|node| all_groups.group_of(node) == group) {
            sum.disk += service.disk_used;
        }
    }
    sum
}

/// Sums up the free amounts on the nodes of groups that accept instances.
fn free_capacity(all_groups: &AllGroups<'_>, state: &State<'_>, groups: &[usize]) -> FreeCapacity {
    let mut sum = FreeCapacity::default();
    for node in groups.iter().flat_map(|&group| all_groups.open_nodes(state, group)) {
        let Amount { memory, disk, vcpus } = state.free(node);
        sum.amount = sum.amount + Amount { memory: memory.max(0), disk: disk.max(0), vcpus: vcpus.max(0) };
        sum.nodes.push(all_groups.problem.nodes[node].cluster_node);
    }
    sum
}

/// Returns the first amount of which at least as much is used as is free.
fn first_exceeded(used: Amount, free: Amount) -> Option<BlockingReason> {
    let pairs = [
        (used.memory, free.memory, BlockingReason::Memory),
        (used.disk, free.disk, BlockingReason::Disk),
        (used.vcpus, free.vcpus, BlockingReason::Cpus),
    ];
    pairs.into_iter().find(|(used, free, _)| used > &0 && used >= free).map(|(_, _, lack)| lack)
}

/// Moves all instances out of a group: by descending memory, or if that fails by descending disk.
fn empty_group(
    all_groups: &AllGroups<'_>,
    state: &State<'_>,
    services: &[usize],
) -> Result<Vec<PlannedMove>, NoEligibleGroup> {
    let problem_services = &all_groups.problem.services;
    let mut by_disk = services.to_vec();
    by_disk.sort_by_key(|&service| {
        (-problem_services[service].disk_used, -problem_services[service].memory, service)
    });
    let mut by_memory = services.to_vec();
    by_memory.sort_by_key(|&service| {
        (-problem_services[service].memory, -problem_services[service].disk_used, service)
    });
    move_all_out(all_groups, state, &by_memory)
        .or_else(|first| move_all_out(all_groups, state, &by_disk).map_err(|_| first))
}

fn move_all_out(
    all_groups: &AllGroups<'_>,
    state: &State<'_>,
    services: &[usize],
) -> Result<Vec<PlannedMove>, NoEligibleGroup> {
    let mut state = state.clone();
    let each = services.iter().map(|&service| {
        let from = state.placement(service);
        let (_, steps) = all_groups.move_to_other_group(&mut state, service, &|_| true)?;
        Ok(PlannedMove::new(all_groups, service, from, steps))
    });
    each.collect()
}
