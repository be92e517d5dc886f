//! Emptying of a group whose instances fit into other groups.

use super::elsewhere::NoPlace;
use super::partition;
use super::span::{Moved, Span, Stays};
use crate::balance::model::Allocation;
use crate::balance::state::{Amount, Lack, State};

/// A group that could be emptied.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Position of the group in the cluster.
    pub group: usize,
    /// Amounts that the instances of the group use.
    pub used: Amount,
    /// Free amounts of those nodes of the group that accept instances.
    pub free: Free,
    /// Free amounts of the groups to which the instances could move.
    pub free_elsewhere: Free,
    /// Result of the attempt to empty the group.
    pub verdict: Verdict,
}

/// Free amounts of several nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Free {
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
    Stays(Stays),
    /// The instances use more of this amount than is free elsewhere.
    TooMuch(Lack),
    /// An instance fits on no node elsewhere.
    NoPlace(NoPlace),
    /// These moves empty the group.
    CanBeEmptied(Vec<Moved>),
}

/// Evaluates every group as a candidate, in the order of the cluster.
pub fn compress(span: &Span<'_>) -> Vec<Candidate> {
    let state = State::new(&span.problem, &span.problem.start);
    span.groups().into_iter().map(|group| candidate(span, &state, group)).collect()
}

/// Returns the candidate that frees the most nodes, then the most memory.
pub fn best<'c>(span: &Span<'_>, candidates: &'c [Candidate]) -> Option<(&'c Candidate, &'c [Moved])> {
    let can = candidates.iter().filter_map(|candidate| match &candidate.verdict {
        Verdict::CanBeEmptied(moved) => Some((candidate, moved.as_slice())),
        Verdict::Empty | Verdict::Stays(_) | Verdict::TooMuch(_) | Verdict::NoPlace(_) => None,
    });
    let freed = |group: usize| {
        let hosts = span.hosts(group);
        let memory: i64 =
            hosts.iter().map(|&host| span.cluster.nodes[span.problem.hosts[host].node].memory_total).sum();
        (hosts.len(), memory)
    };
    can.max_by_key(|(candidate, _)| (freed(candidate.group), std::cmp::Reverse(candidate.group)))
}

fn candidate(span: &Span<'_>, state: &State<'_>, group: usize) -> Candidate {
    let guests = span.living_in(state, group);
    let targets: Vec<usize> = if span.inter_group_moves {
        partition::neighbours(span.cluster, group)
            .into_iter()
            .filter(|&other| span.allocation(other) != Allocation::Unallocable)
            .collect()
    } else {
        Vec::new()
    };
    let used = used(span, state, group);
    let free_elsewhere = free(span, state, &targets);
    let verdict = if guests.is_empty() {
        Verdict::Empty
    } else if let Some(stays) = span.stays(group) {
        Verdict::Stays(stays)
    } else if let Some(lack) = exceeds(used, free_elsewhere.amount) {
        Verdict::TooMuch(lack)
    } else {
        emptied(span, state, &guests).map_or_else(Verdict::NoPlace, Verdict::CanBeEmptied)
    };
    Candidate { group, used, free: free(span, state, &[group]), free_elsewhere, verdict }
}

/// Sums up the amounts that instances use on the nodes of a group.
fn used(span: &Span<'_>, state: &State<'_>, group: usize) -> Amount {
    let mut sum = Amount::default();
    for (guest, spot) in span.problem.guests.iter().zip(state.spots()) {
        if span.group_of(spot.primary) == group {
            sum = sum + Amount { memory: guest.memory_used, disk: guest.disk_used, vcpus: guest.vcpus };
        }
        if spot.secondary.is_some_and(|host| span.group_of(host) == group) {
            sum.disk += guest.disk_used;
        }
    }
    sum
}

/// Sums up the free amounts on the nodes of groups that accept instances.
fn free(span: &Span<'_>, state: &State<'_>, groups: &[usize]) -> Free {
    let mut sum = Free::default();
    for host in groups.iter().flat_map(|&group| span.open_hosts(state, group)) {
        let Amount { memory, disk, vcpus } = state.free(host);
        sum.amount = sum.amount + Amount { memory: memory.max(0), disk: disk.max(0), vcpus: vcpus.max(0) };
        sum.nodes.push(span.problem.hosts[host].node);
    }
    sum
}

/// Returns the first amount of which at least as much is used as is free.
fn exceeds(used: Amount, free: Amount) -> Option<Lack> {
    let pairs = [
        (used.memory, free.memory, Lack::Memory),
        (used.disk, free.disk, Lack::Disk),
        (used.vcpus, free.vcpus, Lack::Cpus),
    ];
    pairs.into_iter().find(|(used, free, _)| used > &0 && used >= free).map(|(_, _, lack)| lack)
}

/// Moves all instances out of a group: by descending memory, or if that fails by descending disk.
fn emptied(span: &Span<'_>, state: &State<'_>, guests: &[usize]) -> Result<Vec<Moved>, NoPlace> {
    let facts = &span.problem.guests;
    let mut by_disk = guests.to_vec();
    by_disk.sort_by_key(|&guest| (-facts[guest].disk_used, -facts[guest].memory, guest));
    let mut by_memory = guests.to_vec();
    by_memory.sort_by_key(|&guest| (-facts[guest].memory, -facts[guest].disk_used, guest));
    out(span, state, &by_memory).or_else(|first| out(span, state, &by_disk).map_err(|_| first))
}

fn out(span: &Span<'_>, state: &State<'_>, guests: &[usize]) -> Result<Vec<Moved>, NoPlace> {
    let mut state = state.clone();
    let each = guests.iter().map(|&guest| {
        let from = state.spot(guest);
        let (_, steps) = span.elsewhere(&mut state, guest, &|_| true)?;
        Ok(Moved::new(span, guest, from, steps))
    });
    each.collect()
}
