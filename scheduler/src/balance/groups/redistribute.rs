//! Repair of unhealthy groups by moving instances out of them; either all groups are repaired, or nothing moves.
//! Afterward, no offline node has instances. Nodes can still fail N+1 if the instances of offline nodes fit nowhere
//! else.

use super::all_groups::{AllGroups, ExclusionReason, PlannedMove};
use super::check::{Health, health};
use super::other_groups::NoEligibleGroup;
use crate::balance::problem::ProblemService;
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
    pub result: Result<Vec<PlannedMove>, RedistributionFailure>,
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
pub enum RedistributionFailure {
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
    let mut state = State::new(&all_groups.problem, &all_groups.problem.start_placements);
    let unhealthy = unhealthy(all_groups, &state);
    let is_healthy = |group: &usize| !unhealthy.iter().any(|(unhealthy_group, _)| unhealthy_group == group);
    let healthy: Vec<usize> = all_groups.groups().into_iter().filter(is_healthy).collect();
    let skipped: Vec<(usize, ExclusionReason)> = unhealthy
        .iter()
        .filter_map(|(group, _)| all_groups.exclusion_reason(*group).map(|reason| (*group, reason)))
        .collect();
    let to_repair = unhealthy.iter().map(|(group, _)| *group);
    let to_repair: Vec<usize> =
        to_repair.filter(|group| !skipped.iter().any(|(skipped_group, _)| skipped_group == group)).collect();
    let result = repair_all(all_groups, &mut state, &to_repair, &healthy);
    let mut remaining = if result.is_ok() { self::unhealthy(all_groups, &state) } else { unhealthy.clone() };
    remaining.retain(|(group, _)| !skipped.iter().any(|(skipped_group, _)| skipped_group == group));
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
) -> Result<Vec<PlannedMove>, RedistributionFailure> {
    let accepts_instances =
        |group: &&usize| all_groups.allocation(**group) != crate::balance::model::Allocation::Unallocable;
    if !groups.is_empty() && !healthy.iter().any(|group| accepts_instances(&group)) {
        return Err(RedistributionFailure::NothingHealthy);
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
) -> Result<(), RedistributionFailure> {
    let is_open = |target: usize| healthy.contains(&target);
    let mut move_out = |state: &mut State<'_>, service: usize| {
        let from = state.placement(service);
        let (_, steps) = all_groups.move_to_other_group(state, service, &is_open)?;
        moved.push(PlannedMove::new(all_groups, service, from, steps));
        Ok(())
    };
    let nodes = all_groups.nodes_of(group);
    for service in instances_on_offline_nodes(all_groups, state, &nodes) {
        move_out(state, service).map_err(|no_eligible_group| RedistributionFailure::NoEligibleGroup {
            group,
            no_eligible_group,
        })?;
    }
    loop {
        let failing: Vec<usize> = nodes.iter().copied().filter(|&node| state.fails_n1(node)).collect();
        let Some(&first) = failing.first() else { return Ok(()) };
        let mut first_refusal = None;
        let has_moved = instances_to_move_out(all_groups, state, first).into_iter().any(|service| {
            match move_out(state, service) {
                Ok(()) => true,
                Err(no_eligible_group) => {
                    first_refusal.get_or_insert(no_eligible_group);
                    false
                }
            }
        });
        if !has_moved {
            let nodes = failing.iter().map(|&node| all_groups.problem.nodes[node].cluster_node).collect();
            return Err(first_refusal
                .map_or(RedistributionFailure::StillFailing { group, nodes }, |no_eligible_group| {
                    RedistributionFailure::NoEligibleGroup { group, no_eligible_group }
                }));
        }
    }
}

/// Returns the instances on offline nodes, largest first, because those are the hardest to place.
fn instances_on_offline_nodes(all_groups: &AllGroups<'_>, state: &State<'_>, nodes: &[usize]) -> Vec<usize> {
    let problem = &all_groups.problem;
    let is_offline = |node: usize| problem.nodes[node].is_offline && nodes.contains(&node);
    let mut services: Vec<usize> = (0..problem.services.len())
        .filter(|&service| state.placement(service).nodes().any(is_offline))
        .collect();
    services.sort_by_key(|&service| (-problem.services[service].memory, service));
    services
}

/// Returns the instances whose departure would help a node that fails N+1.
///
/// Secondaries from the peer that would send the most come first, then primaries. Within each, sufficient ones come first,
/// by ascending size, then the others by descending size.
fn instances_to_move_out(all_groups: &AllGroups<'_>, state: &State<'_>, node: usize) -> Vec<usize> {
    let problem = &all_groups.problem;
    let all_services = 0..problem.services.len();
    let mut peers: BTreeMap<usize, i64> = BTreeMap::new();
    for service in all_services.clone() {
        let placement = state.placement(service);
        if placement.secondary == Some(node) {
            *peers.entry(placement.primary).or_default() += problem.services[service].memory_reserved;
        }
    }
    let worst = peers.iter().max_by_key(|(peer, memory)| (**memory, std::cmp::Reverse(**peer)));
    let reserved = worst.map_or(0, |(_, memory)| *memory);
    let deficit = reserved - state.memory_free(node) + 1;
    let by_size = |mut services: Vec<usize>, size: &dyn Fn(&ProblemService) -> i64| {
        services.retain(|&service| size(&problem.services[service]) > 0);
        services.sort_by_key(|&service| {
            let size = size(&problem.services[service]);
            (size < deficit, if size < deficit { -size } else { size }, service)
        });
        services
    };
    let secondaries = all_services
        .clone()
        .filter(|&service| {
            let placement = state.placement(service);
            placement.secondary == Some(node) && worst.is_some_and(|(peer, _)| placement.primary == *peer)
        })
        .collect();
    let primaries = all_services.filter(|&service| state.placement(service).primary == node).collect();
    let mut instances_to_move_out = by_size(secondaries, &|service| service.memory_reserved);
    instances_to_move_out.extend(by_size(primaries, &|service| service.memory_used));
    instances_to_move_out
}
