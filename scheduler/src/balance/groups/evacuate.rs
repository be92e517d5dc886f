//! New nodes for all instances of some nodes: in their own group first, or else in another group of the partition.

use super::all_groups::{AllGroups, PlannedMove};
use super::other_groups::{NoEligibleGroup, Obstacle, move_within_limits, shortlists};
use super::partition::Barrier;
use crate::balance::model::Reach;
use crate::balance::moves::destinations;
use crate::balance::plan::{Step, step};
use crate::balance::problem::Placement;
use crate::balance::state::State;

/// The instances that have to leave the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvacuatedCopies {
    /// All instances.
    #[default]
    All,
    /// Instances whose primary is on the nodes.
    Primaries,
    /// Instances whose second copy is on the nodes.
    Secondaries,
}

/// The moves of an evacuation.
#[derive(Clone, Debug, PartialEq)]
pub struct Evacuation {
    /// Moves inside the group, in an executable order.
    pub inside: Vec<PlannedMove>,
    /// Moves to other groups, to be executed after `inside`.
    pub outside: Vec<PlannedMove>,
    /// Instances for which no other node was found.
    pub stuck: Vec<NoEligibleGroup>,
}

/// Plans the evacuation of nodes, which must be drained in the problem's settings. `hosts` are their positions in the
/// problem.
pub fn evacuate(all_groups: &AllGroups<'_>, hosts: &[usize], part: EvacuatedCopies) -> Evacuation {
    let mut state = State::new(&all_groups.problem, &all_groups.problem.start);
    let mut waiting: Vec<usize> = (0..all_groups.problem.guests.len())
        .filter(|&guest| {
            let placement = state.placement(guest);
            let (primary, secondary) = (
                hosts.contains(&placement.primary),
                placement.secondary.is_some_and(|host| hosts.contains(&host)),
            );
            match part {
                EvacuatedCopies::All => primary || secondary,
                EvacuatedCopies::Primaries => primary,
                EvacuatedCopies::Secondaries => secondary,
            }
        })
        .collect();
    // The largest instances are the hardest to place.
    waiting.sort_by_key(|&guest| (-all_groups.problem.guests[guest].memory, guest));
    let mut evacuation = Evacuation { inside: Vec::new(), outside: Vec::new(), stuck: Vec::new() };
    let mut remaining = Vec::new();
    for guest in waiting {
        let from = state.placement(guest);
        match inside(all_groups, &mut state, guest, from) {
            Ok(steps) => evacuation.inside.push(PlannedMove::new(all_groups, guest, from, steps)),
            Err(obstacle) => remaining.push((guest, obstacle)),
        }
    }
    for (guest, obstacle) in remaining {
        let from = state.placement(guest);
        match all_groups.move_to_other_group(&mut state, guest, &|_| true) {
            Ok((_, steps)) => evacuation.outside.push(PlannedMove::new(all_groups, guest, from, steps)),
            Err(mut no_eligible_group) => {
                no_eligible_group.obstacles.insert(0, (all_groups.group_of(from.primary), obstacle));
                evacuation.stuck.push(no_eligible_group);
            }
        }
    }
    evacuation
}

/// Moves an instance to nodes of its group that are not offline, by a single step if possible, the lowest score first.
fn inside(
    all_groups: &AllGroups<'_>,
    state: &mut State<'_>,
    guest: usize,
    from: Placement,
) -> Result<Vec<Step>, Obstacle> {
    let problem = &all_groups.problem;
    if problem.guests[guest].reach == Reach::Local {
        return Err(Obstacle::Barrier(Barrier::Local));
    }
    if let Some(reason) = all_groups
        .cluster
        .live_constraints
        .get(&problem.guests[guest].instance)
        .and_then(|one| one.immovable_reason)
    {
        return Err(Obstacle::Barrier(Barrier::Immovable(reason)));
    }
    let mut hosts = all_groups.hosts(all_groups.group_of(from.primary));
    hosts.retain(|&host| !problem.hosts[host].offline);
    for hosts in shortlists(state, hosts.clone()) {
        let mut placements = Vec::new();
        destinations(problem, guest, from, &hosts, &mut placements);
        let works = |host: usize| !problem.hosts[host].offline;
        placements.retain(|to| to.nodes().all(works));
        let mut ranked: Vec<(f64, Placement)> = Vec::new();
        for to in placements {
            if state.change(&[(guest, to)]) {
                ranked.push((state.score(), to));
                state.restore(guest, from);
            }
        }
        ranked.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        for (_, to) in ranked {
            if let Some(only) = step(state, guest, to) {
                return Ok(vec![only]);
            }
        }
    }
    move_within_limits(state, guest, hosts)
}
