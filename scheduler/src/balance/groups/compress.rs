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
    let state = State::new(&all_groups.problem, &all_groups.problem.start);
    all_groups.groups().into_iter().map(|group| candidate(all_groups, &state, group)).collect()
}

/// Returns the candidate that frees the most nodes, then the most memory.
pub fn best<'c>(
    all_groups: &AllGroups<'_>,
    candidates: &'c [Candidate],
) -> Option<(&'c Candidate, &'c [PlannedMove])> {
    let can = candidates.iter().filter_map(|candidate| match &candidate.verdict {
        Verdict::CanBeEmptied(moved) => Some((candidate, moved.as_slice())),
        Verdict::Empty | Verdict::Excluded(_) | Verdict::TooMuch(_) | Verdict::NoEligibleGroup(_) => None,
    });
    let freed = |group: usize| {
        let hosts = all_groups.hosts(group);
        let memory: i64 = hosts
            .iter()
            .map(|&host| all_groups.cluster.nodes[all_groups.problem.hosts[host].node].memory_total)
            .sum();
        (hosts.len(), memory)
    };
    can.max_by_key(|(candidate, _)| (freed(candidate.group), std::cmp::Reverse(candidate.group)))
}

fn candidate(all_groups: &AllGroups<'_>, state: &State<'_>, group: usize) -> Candidate {
    let guests = all_groups.instances_using(state, group);
    let targets: Vec<usize> = if all_groups.inter_group_moves {
        partition::connected_groups(all_groups.cluster, group)
            .into_iter()
            .filter(|&other| all_groups.allocation(other) != Allocation::Unallocable)
            .collect()
    } else {
        Vec::new()
    };
    let used = used(all_groups, state, group);
    let free_elsewhere = free(all_groups, state, &targets);
    let verdict = if guests.is_empty() {
        Verdict::Empty
    } else if let Some(reason) = all_groups.exclusion_reason(group) {
        Verdict::Excluded(reason)
    } else if let Some(lack) = exceeds(used, free_elsewhere.amount) {
        Verdict::TooMuch(lack)
    } else {
        empty_group(all_groups, state, &guests).map_or_else(Verdict::NoEligibleGroup, Verdict::CanBeEmptied)
    };
    Candidate { group, used, free: free(all_groups, state, &[group]), free_elsewhere, verdict }
}

/// Sums up the amounts that instances use on the nodes of a group.
fn used(all_groups: &AllGroups<'_>, state: &State<'_>, group: usize) -> Amount {
    let mut sum = Amount::default();
    for (guest, placement) in all_groups.problem.guests.iter().zip(state.placements()) {
        if all_groups.group_of(placement.primary) == group {
            sum = sum + Amount { memory: guest.memory_used, disk: guest.disk_used, vcpus: guest.vcpus };
        }
        if placement.secondary.is_some_and(|host| all_groups.group_of(host) == group) {
            sum.disk += guest.disk_used;
        }
    }
    sum
}

/// Sums up the free amounts on the nodes of groups that accept instances.
fn free(all_groups: &AllGroups<'_>, state: &State<'_>, groups: &[usize]) -> FreeCapacity {
    let mut sum = FreeCapacity::default();
    for host in groups.iter().flat_map(|&group| all_groups.open_hosts(state, group)) {
        let Amount { memory, disk, vcpus } = state.free(host);
        sum.amount = sum.amount + Amount { memory: memory.max(0), disk: disk.max(0), vcpus: vcpus.max(0) };
        sum.nodes.push(all_groups.problem.hosts[host].node);
    }
    sum
}

/// Returns the first amount of which at least as much is used as is free.
fn exceeds(used: Amount, free: Amount) -> Option<BlockingReason> {
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
    guests: &[usize],
) -> Result<Vec<PlannedMove>, NoEligibleGroup> {
    let facts = &all_groups.problem.guests;
    let mut by_disk = guests.to_vec();
    by_disk.sort_by_key(|&guest| (-facts[guest].disk_used, -facts[guest].memory, guest));
    let mut by_memory = guests.to_vec();
    by_memory.sort_by_key(|&guest| (-facts[guest].memory, -facts[guest].disk_used, guest));
    move_all_out(all_groups, state, &by_memory)
        .or_else(|first| move_all_out(all_groups, state, &by_disk).map_err(|_| first))
}

fn move_all_out(
    all_groups: &AllGroups<'_>,
    state: &State<'_>,
    guests: &[usize],
) -> Result<Vec<PlannedMove>, NoEligibleGroup> {
    let mut state = state.clone();
    let each = guests.iter().map(|&guest| {
        let from = state.placement(guest);
        let (_, steps) = all_groups.move_to_other_group(&mut state, guest, &|_| true)?;
        Ok(PlannedMove::new(all_groups, guest, from, steps))
    });
    each.collect()
}
