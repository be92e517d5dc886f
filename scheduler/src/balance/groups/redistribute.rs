//! Repair of unhealthy groups by moving instances out of them; either all groups are repaired, or nothing moves.
//! Afterward, no offline node has instances. Nodes can still fail N+1 if the instances of offline nodes fit nowhere
//! else.

use super::all_groups::{AllGroups, ExclusionReason, PlannedMove};
use super::check::{Health, health};
use super::other_groups::NoEligibleGroup;
use crate::balance::problem::Guest;
use crate::balance::state::State;
use std::collections::BTreeMap;

/// The result for all groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Redistribution {
    /// The groups that are not healthy.
    pub unhealthy: Vec<(usize, Health)>,
    /// The unhealthy groups that no instance can leave.
    pub skipped: Vec<(usize, ExclusionReason)>,
    /// The moves that repair the other unhealthy groups, or the reason why there are none.
    pub result: Result<Vec<PlannedMove>, Blocked>,
    /// The groups other than the skipped ones that are not healthy after the moves.
    pub remaining: Vec<(usize, Health)>,
}

impl Redistribution {
    /// Returns `true` if every group is healthy after the moves.
    pub fn repairs_all(&self) -> bool {
        self.skipped.is_empty() && self.result.is_ok() && self.remaining.is_empty()
    }
}

/// The reason why nothing moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// No other group is healthy and accepts instances.
    NothingHealthy,
    /// An instance that must leave fits nowhere.
    NoEligibleGroup {
        /// The group that the instance should leave.
        group: usize,
        /// The instance, and the obstacle of each group.
        no_eligible_group: NoEligibleGroup,
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
pub fn redistribute(all_groups: &AllGroups<'_>) -> Redistribution {
    let mut state = State::new(&all_groups.problem, &all_groups.problem.start);
    let unhealthy = unhealthy(all_groups, &state);
    let is_healthy = |group: &usize| !unhealthy.iter().any(|(known, _)| known == group);
    let healthy: Vec<usize> = all_groups.groups().into_iter().filter(is_healthy).collect();
    let skipped: Vec<(usize, ExclusionReason)> = unhealthy
        .iter()
        .filter_map(|(group, _)| all_groups.exclusion_reason(*group).map(|reason| (*group, reason)))
        .collect();
    let to_repair = unhealthy.iter().map(|(group, _)| *group);
    let to_repair: Vec<usize> =
        to_repair.filter(|group| !skipped.iter().any(|(known, _)| known == group)).collect();
    let result = repair_all(all_groups, &mut state, &to_repair, &healthy);
    let mut remaining = if result.is_ok() { self::unhealthy(all_groups, &state) } else { unhealthy.clone() };
    remaining.retain(|(group, _)| !skipped.iter().any(|(known, _)| known == group));
    Redistribution { unhealthy, skipped, result, remaining }
}

fn unhealthy(all_groups: &AllGroups<'_>, state: &State<'_>) -> Vec<(usize, Health)> {
    let each = all_groups.groups().into_iter().map(|group| (group, health(all_groups, state, group)));
    each.filter(|(_, health)| !health.is_healthy()).collect()
}

fn repair_all(
    all_groups: &AllGroups<'_>,
    state: &mut State<'_>,
    groups: &[usize],
    healthy: &[usize],
) -> Result<Vec<PlannedMove>, Blocked> {
    let accepts_instances =
        |group: &&usize| all_groups.allocation(**group) != crate::balance::model::Allocation::Unallocable;
    if !groups.is_empty() && !healthy.iter().any(|group| accepts_instances(&group)) {
        return Err(Blocked::NothingHealthy);
    }
    let mut moved = Vec::new();
    for &group in groups {
        repair_group(all_groups, state, group, healthy, &mut moved)?;
    }
    Ok(moved)
}

/// Moves instances out of a group one at a time: users of offline nodes, then secondaries on nodes that fail N+1, then
/// primaries on those nodes.
fn repair_group(
    all_groups: &AllGroups<'_>,
    state: &mut State<'_>,
    group: usize,
    healthy: &[usize],
    moved: &mut Vec<PlannedMove>,
) -> Result<(), Blocked> {
    let open = |target: usize| healthy.contains(&target);
    let mut move_out = |state: &mut State<'_>, guest: usize| {
        let from = state.placement(guest);
        let (_, steps) = all_groups.move_to_other_group(state, guest, &open)?;
        moved.push(PlannedMove::new(all_groups, guest, from, steps));
        Ok(())
    };
    let hosts = all_groups.hosts(group);
    for guest in instances_on_offline_nodes(all_groups, state, &hosts) {
        move_out(state, guest)
            .map_err(|no_eligible_group| Blocked::NoEligibleGroup { group, no_eligible_group })?;
    }
    loop {
        let failing: Vec<usize> = hosts.iter().copied().filter(|&host| state.fails_n1(host)).collect();
        let Some(&first) = failing.first() else { return Ok(()) };
        let mut refused = None;
        let has_moved =
            instances_to_move_out(all_groups, state, first).into_iter().any(|guest| {
                match move_out(state, guest) {
                    Ok(()) => true,
                    Err(no_eligible_group) => {
                        refused.get_or_insert(no_eligible_group);
                        false
                    }
                }
            });
        if !has_moved {
            let nodes = failing.iter().map(|&host| all_groups.problem.hosts[host].node).collect();
            return Err(refused.map_or(Blocked::StillFailing { group, nodes }, |no_eligible_group| {
                Blocked::NoEligibleGroup { group, no_eligible_group }
            }));
        }
    }
}

/// Returns the instances on offline nodes, largest first, because those are the hardest to place.
fn instances_on_offline_nodes(all_groups: &AllGroups<'_>, state: &State<'_>, hosts: &[usize]) -> Vec<usize> {
    let problem = &all_groups.problem;
    let offline = |host: usize| problem.hosts[host].offline && hosts.contains(&host);
    let mut guests: Vec<usize> =
        (0..problem.guests.len()).filter(|&guest| state.placement(guest).nodes().any(offline)).collect();
    guests.sort_by_key(|&guest| (-problem.guests[guest].memory, guest));
    guests
}

/// Returns the instances whose departure would help a node that fails N+1.
///
/// Secondaries from the peer that would send the most come first, then primaries. Within each, sufficient ones come first,
/// by ascending size, then the others by descending size.
fn instances_to_move_out(all_groups: &AllGroups<'_>, state: &State<'_>, host: usize) -> Vec<usize> {
    let problem = &all_groups.problem;
    let all_guests = 0..problem.guests.len();
    let mut peers: BTreeMap<usize, i64> = BTreeMap::new();
    for guest in all_guests.clone() {
        let placement = state.placement(guest);
        if placement.secondary == Some(host) {
            *peers.entry(placement.primary).or_default() += problem.guests[guest].memory_reserved;
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
    let secondaries = all_guests
        .clone()
        .filter(|&guest| {
            let placement = state.placement(guest);
            placement.secondary == Some(host) && worst.is_some_and(|(peer, _)| placement.primary == *peer)
        })
        .collect();
    let primaries = all_guests.filter(|&guest| state.placement(guest).primary == host).collect();
    let mut instances_to_move_out = by_size(secondaries, &|guest| guest.memory_reserved);
    instances_to_move_out.extend(by_size(primaries, &|guest| guest.memory_used));
    instances_to_move_out
}
