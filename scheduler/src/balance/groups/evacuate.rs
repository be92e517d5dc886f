//! New nodes for all instances of some nodes: in their own group first, or else in another group of the partition.

use super::all_groups::{AllGroups, PlannedMove};
use super::other_groups::{NoEligibleGroup, Obstacle, move_within_limits, shortlists};
use super::partition::EntryBarrier;
use crate::balance::model::StorageReach;
use crate::balance::moves::destinations;
use crate::balance::plan::{Step, make_step};
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
    pub immovable: Vec<NoEligibleGroup>,
}

/// Plans the evacuation of nodes, which must be drained in the problem's settings. `nodes` are their positions in the
/// problem.
pub fn evacuate(all_groups: &AllGroups<'_>, nodes: &[usize], part: EvacuatedCopies) -> Evacuation {
    let mut state = State::new(&all_groups.problem, &all_groups.problem.start_placements);
    let mut waiting: Vec<usize> = (0..all_groups.problem.services.len())
        .filter(|&service| {
            let placement = state.placement(service);
            let (primary, secondary) = (
                nodes.contains(&placement.primary),
                placement.secondary.is_some_and(|node| nodes.contains(&node)),
            );
            match part {
                EvacuatedCopies::All => primary || secondary,
                EvacuatedCopies::Primaries => primary,
                EvacuatedCopies::Secondaries => secondary,
            }
        })
        .collect();
    // The largest instances are the hardest to place.
    waiting.sort_by_key(|&service| (-all_groups.problem.services[service].memory, service));
    let mut evacuation = Evacuation { inside: Vec::new(), outside: Vec::new(), immovable: Vec::new() };
    let mut remaining = Vec::new();
    for service in waiting {
        let from = state.placement(service);
        match move_inside_group(all_groups, &mut state, service, from) {
            Ok(steps) => evacuation.inside.push(PlannedMove::new(all_groups, service, from, steps)),
            Err(obstacle) => remaining.push((service, obstacle)),
        }
    }
    // All moves inside groups come before the moves to other groups, because those need not be applied.
    remaining.retain(|&(service, _)| {
        let moves = move_after_another(all_groups, &mut state, service, nodes);
        let remains = moves.is_none();
        evacuation.inside.extend(moves.into_iter().flatten());
        remains
    });
    for (service, obstacle) in remaining {
        let from = state.placement(service);
        match all_groups.move_to_other_group(&mut state, service, &|_| true) {
            Ok((_, steps)) => evacuation.outside.push(PlannedMove::new(all_groups, service, from, steps)),
            Err(mut no_eligible_group) => {
                no_eligible_group.obstacles.insert(0, (all_groups.group_of(from.primary), obstacle));
                evacuation.immovable.push(no_eligible_group);
            }
        }
    }
    evacuation
}

/// Moves an instance to nodes of its group that are not offline, by a single step if possible, the lowest score first.
fn move_inside_group(
    all_groups: &AllGroups<'_>,
    state: &mut State<'_>,
    service: usize,
    from: Placement,
) -> Result<Vec<Step>, Obstacle> {
    let problem = &all_groups.problem;
    check_movable(all_groups, service)?;
    let nodes = online_nodes(all_groups, from);
    for nodes in shortlists(state, nodes.clone()) {
        let mut placements = Vec::new();
        destinations(problem, service, from, &nodes, &mut placements);
        let is_working = |node: usize| !problem.nodes[node].is_offline;
        placements.retain(|to| to.nodes().all(is_working));
        let mut ranked: Vec<(f64, Placement)> = Vec::new();
        for to in placements {
            if state.change(&[(service, to)]) {
                ranked.push((state.score(), to));
                state.restore(service, from);
            }
        }
        ranked.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
        for (_, to) in ranked {
            if let Some(only_step) = make_step(state, service, to) {
                return Ok(vec![only_step]);
            }
        }
    }
    move_within_limits(state, service, nodes)
}

/// Number of moves of other instances that are tried for one instance.
const TRIED_MOVES: usize = 20_000;

/// Moves another instance of the group, the smallest for which this works, and then the instance to the freed node. No
/// instance moves twice. Returns both moves, or `None` and an unchanged state if no such pair was found.
fn move_after_another(
    all_groups: &AllGroups<'_>,
    state: &mut State<'_>,
    service: usize,
    evacuated: &[usize],
) -> Option<[PlannedMove; 2]> {
    let problem = &all_groups.problem;
    check_movable(all_groups, service).ok()?;
    let from = state.placement(service);
    let group = all_groups.group_of(from.primary);
    let nodes = online_nodes(all_groups, from);
    let mut others: Vec<usize> = (0..problem.services.len())
        .filter(|&other| {
            let placement = state.placement(other);
            all_groups.group_of(placement.primary) == group
                && placement == problem.start_placements[other]
                && !placement.nodes().any(|node| evacuated.contains(&node))
                && check_movable(all_groups, other).is_ok()
        })
        .collect();
    others.sort_by_key(|&other| (problem.services[other].memory, other));
    let (mut other_placements, mut placements) = (Vec::new(), Vec::new());
    let mut tried_moves = 0;
    for other in others {
        let other_from = state.placement(other);
        destinations(problem, other, other_from, &nodes, &mut other_placements);
        for &other_to in &other_placements {
            tried_moves += 1;
            if tried_moves > TRIED_MOVES {
                return None;
            }
            let Some(other_step) = make_step(state, other, other_to) else { continue };
            let freed: Vec<usize> = other_from.nodes().filter(|node| !other_to.contains(*node)).collect();
            destinations(problem, service, from, &freed, &mut placements);
            placements.retain(|to| to.nodes().all(|node| nodes.contains(&node)));
            for &to in &placements {
                if let Some(step) = make_step(state, service, to) {
                    return Some([
                        PlannedMove::new(all_groups, other, other_from, vec![other_step]),
                        PlannedMove::new(all_groups, service, from, vec![step]),
                    ]);
                }
            }
            state.restore(other, other_from);
        }
    }
    None
}

/// Returns the nodes of the placement's group that are not offline.
fn online_nodes(all_groups: &AllGroups<'_>, placement: Placement) -> Vec<usize> {
    let mut nodes = all_groups.nodes_of(all_groups.group_of(placement.primary));
    nodes.retain(|&node| !all_groups.problem.nodes[node].is_offline);
    nodes
}

/// Returns the barrier that keeps an instance on its nodes, if any.
fn check_movable(all_groups: &AllGroups<'_>, service: usize) -> Result<(), Obstacle> {
    let problem_service = &all_groups.problem.services[service];
    if problem_service.reach == StorageReach::Local {
        return Err(Obstacle::EntryBarrier(EntryBarrier::Local));
    }
    let constraints = all_groups.cluster.live_constraints.get(&problem_service.instance);
    match constraints.and_then(|constraints| constraints.immovable_reason) {
        Some(reason) => Err(Obstacle::EntryBarrier(EntryBarrier::Immovable(reason))),
        None => Ok(()),
    }
}
