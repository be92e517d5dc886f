//! Repair of unhealthy groups by moving instances out of them; either all groups are repaired, or nothing moves. No node
//! stays offline with instances, but a node may fail N+1 afterward if the instances of offline nodes fit nowhere else.

use super::check::{Health, health};
use super::elsewhere::NoPlace;
use super::span::{Moved, Span, Stays};
use crate::balance::problem::Guest;
use crate::balance::state::State;
use std::collections::BTreeMap;

/// The result for all groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Redistribution {
    /// The groups that are not healthy.
    pub unhealthy: Vec<(usize, Health)>,
    /// The unhealthy groups that no instance can leave.
    pub skipped: Vec<(usize, Stays)>,
    /// The moves that repair the other unhealthy groups, or the reason why there are none.
    pub result: Result<Vec<Moved>, Blocked>,
    /// The groups other than the skipped ones that are not healthy after the moves.
    pub remaining: Vec<(usize, Health)>,
}

impl Redistribution {
    /// Returns `true` if every group is healthy after the moves.
    pub fn heals(&self) -> bool {
        self.skipped.is_empty() && self.result.is_ok() && self.remaining.is_empty()
    }
}

/// The reason why nothing moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// No other group is healthy and accepts instances.
    NothingHealthy,
    /// An instance that must leave fits nowhere.
    NoPlace {
        /// The group that the instance should leave.
        group: usize,
        /// The instance, and the obstacle of each group.
        no_place: NoPlace,
    },
    /// Nodes would fail N+1 although no further instance can be moved out.
    StillFailing {
        /// Group of the nodes.
        group: usize,
        /// The nodes, by position in the cluster.
        nodes: Vec<usize>,
    },
}

/// Plans the repair of every unhealthy group.
pub fn redistribute(span: &Span<'_>) -> Redistribution {
    let mut state = State::new(&span.problem, &span.problem.start);
    let unhealthy = unhealthy(span, &state);
    let is_healthy = |group: &usize| !unhealthy.iter().any(|(ill, _)| ill == group);
    let healthy: Vec<usize> = span.groups().into_iter().filter(is_healthy).collect();
    let skipped: Vec<(usize, Stays)> =
        unhealthy.iter().filter_map(|(group, _)| span.stays(*group).map(|why| (*group, why))).collect();
    let to_heal = unhealthy.iter().map(|(group, _)| *group);
    let to_heal: Vec<usize> =
        to_heal.filter(|group| !skipped.iter().any(|(known, _)| known == group)).collect();
    let result = all(span, &mut state, &to_heal, &healthy);
    let mut remaining = if result.is_ok() { self::unhealthy(span, &state) } else { unhealthy.clone() };
    remaining.retain(|(group, _)| !skipped.iter().any(|(known, _)| known == group));
    Redistribution { unhealthy, skipped, result, remaining }
}

fn unhealthy(span: &Span<'_>, state: &State<'_>) -> Vec<(usize, Health)> {
    let each = span.groups().into_iter().map(|group| (group, health(span, state, group)));
    each.filter(|(_, health)| !health.is_healthy()).collect()
}

fn all(
    span: &Span<'_>,
    state: &mut State<'_>,
    groups: &[usize],
    healthy: &[usize],
) -> Result<Vec<Moved>, Blocked> {
    let takes = |group: &&usize| span.allocation(**group) != crate::balance::model::Allocation::Unallocable;
    if !groups.is_empty() && !healthy.iter().any(|group| takes(&group)) {
        return Err(Blocked::NothingHealthy);
    }
    let mut moved = Vec::new();
    for &group in groups {
        heal(span, state, group, healthy, &mut moved)?;
    }
    Ok(moved)
}

/// Moves instances out of a group one at a time: users of offline nodes, then secondaries on nodes that fail N+1, then
/// primaries on those nodes.
fn heal(
    span: &Span<'_>,
    state: &mut State<'_>,
    group: usize,
    healthy: &[usize],
    moved: &mut Vec<Moved>,
) -> Result<(), Blocked> {
    let open = |target: usize| healthy.contains(&target);
    let mut leave = |state: &mut State<'_>, guest: usize| {
        let from = state.spot(guest);
        let (_, steps) = span.elsewhere(state, guest, &open)?;
        moved.push(Moved::new(span, guest, from, steps));
        Ok(())
    };
    let hosts = span.hosts(group);
    for guest in stranded(span, state, &hosts) {
        leave(state, guest).map_err(|no_place| Blocked::NoPlace { group, no_place })?;
    }
    loop {
        let failing: Vec<usize> = hosts.iter().copied().filter(|&host| state.fails_n1(host)).collect();
        let Some(&first) = failing.first() else { return Ok(()) };
        let mut refused = None;
        let found = burdens(span, state, first).into_iter().any(|guest| match leave(state, guest) {
            Ok(()) => true,
            Err(no_place) => {
                refused.get_or_insert(no_place);
                false
            }
        });
        if !found {
            let nodes = failing.iter().map(|&host| span.problem.hosts[host].node).collect();
            return Err(refused.map_or(Blocked::StillFailing { group, nodes }, |no_place| {
                Blocked::NoPlace { group, no_place }
            }));
        }
    }
}

/// Returns the instances on offline nodes, largest first, because those are the hardest to place.
fn stranded(span: &Span<'_>, state: &State<'_>, hosts: &[usize]) -> Vec<usize> {
    let problem = &span.problem;
    let offline = |host: usize| problem.hosts[host].offline && hosts.contains(&host);
    let mut guests: Vec<usize> =
        (0..problem.guests.len()).filter(|&guest| state.spot(guest).nodes().any(offline)).collect();
    guests.sort_by_key(|&guest| (-problem.guests[guest].memory, guest));
    guests
}

/// Returns the instances whose departure would help a node that fails N+1.
///
/// Secondaries from the peer that would send the most come first, then primaries. Within each, sufficient ones come first,
/// by ascending size, then the others by descending size.
fn burdens(span: &Span<'_>, state: &State<'_>, host: usize) -> Vec<usize> {
    let problem = &span.problem;
    let all = 0..problem.guests.len();
    let mut peers: BTreeMap<usize, i64> = BTreeMap::new();
    for guest in all.clone() {
        let spot = state.spot(guest);
        if spot.secondary == Some(host) {
            *peers.entry(spot.primary).or_default() += problem.guests[guest].memory_reserved;
        }
    }
    let worst = peers.iter().max_by_key(|(peer, memory)| (**memory, std::cmp::Reverse(**peer)));
    let reserved = worst.map_or(0, |(_, memory)| *memory);
    let deficit = reserved - state.memory_free(host) + 1;
    let by_size = |mut guests: Vec<usize>, size: &dyn Fn(&Guest) -> i64| {
        guests.retain(|&guest| size(&problem.guests[guest]) > 0);
        guests.sort_by_key(|&guest| {
            let size = size(&problem.guests[guest]);
            (size < deficit, if size < deficit { -size } else { size }, guest)
        });
        guests
    };
    let secondaries = all
        .clone()
        .filter(|&guest| {
            let spot = state.spot(guest);
            spot.secondary == Some(host) && worst.is_some_and(|(peer, _)| spot.primary == *peer)
        })
        .collect();
    let primaries = all.filter(|&guest| state.spot(guest).primary == host).collect();
    let mut burdens = by_size(secondaries, &|guest| guest.memory_reserved);
    burdens.extend(by_size(primaries, &|guest| guest.memory_used));
    burdens
}
