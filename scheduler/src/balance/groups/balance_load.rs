//! Balancing of load between groups. Only the load determines the choice of the group.
//!
//! The load of a group is the load of its instances (cpu, memory, disk, network, as in the balancer's score) divided by
//! its online nodes. The total deviation is the deviation of that load over all nodes, summed over the four parts.

use super::all_groups::{AllGroups, ExclusionReason, PlannedMove};
use super::other_groups::move_within_limits;
use super::partition;
use crate::balance::model::{Allocation, LOAD_UNIT};
use crate::balance::state::State;

/// The load of a group before and after the moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupLoad {
    /// Position of the group in the cluster.
    pub group: usize,
    /// Load per node before the moves.
    pub load_before: f64,
    /// Load per node after the moves.
    pub load_after: f64,
    /// Reason why the group is skipped; `None` if it is considered.
    pub exclusion_reason: Option<ExclusionReason>,
}

/// Moves that balance the load.
#[derive(Clone, Debug, PartialEq)]
pub struct BalancedGroups {
    /// The groups with online nodes, in the order of the cluster.
    pub groups: Vec<GroupLoad>,
    /// The deviation before the moves.
    pub deviation_before: f64,
    /// The deviation after the moves.
    pub deviation_after: f64,
    /// The moves, in order.
    pub moves: Vec<PlannedMove>,
}

/// Loads of groups, from which the gain of a move follows.
#[derive(Clone)]
struct Loads {
    groups: Vec<usize>,
    nodes: Vec<f64>,
    sums: Vec<[f64; 4]>,
}

impl Loads {
    fn new(all_groups: &AllGroups<'_>, state: &State<'_>) -> Loads {
        let online_count = |group: usize| {
            all_groups
                .nodes_of(group)
                .into_iter()
                .filter(|&node| !all_groups.problem.nodes[node].is_offline)
                .count()
        };
        let groups: Vec<usize> =
            all_groups.groups().into_iter().filter(|&group| online_count(group) > 0).collect();
        let nodes = groups.iter().map(|&group| online_count(group) as f64).collect();
        let mut loads = Loads { sums: vec![[0.0; 4]; groups.len()], groups, nodes };
        for service in 0..all_groups.problem.services.len() {
            let placement = state.placement(service);
            let [cpu, memory, disk, network] = load(all_groups, service);
            loads.add(all_groups.group_of(placement.primary), [cpu, memory, disk, network], 1.0);
            if let Some(secondary) = placement.secondary {
                loads.add(all_groups.group_of(secondary), [0.0, 0.0, disk, 0.0], 1.0);
            }
        }
        loads
    }

    fn index_of(&self, group: usize) -> Option<usize> {
        self.groups.iter().position(|listed| *listed == group)
    }

    fn add(&mut self, group: usize, load: [f64; 4], sign: f64) {
        if let Some(index) = self.index_of(group) {
            for (sum, part) in self.sums[index].iter_mut().zip(load) {
                *sum += part * sign;
            }
        }
    }

    /// Returns the mean load per node over all nodes, for one part.
    fn mean(&self, part: usize) -> f64 {
        self.sums.iter().map(|load| load[part]).sum::<f64>() / self.nodes.iter().sum::<f64>().max(1.0)
    }

    fn per_node(&self, index: usize) -> f64 {
        self.sums[index].iter().sum::<f64>() / self.nodes[index]
    }

    /// Returns the distance of a group from the mean load, summed over the four parts.
    fn distance(&self, index: usize) -> f64 {
        (0..4).map(|part| (self.sums[index][part] / self.nodes[index] - self.mean(part)).abs()).sum()
    }

    fn deviation(&self) -> f64 {
        let node_count = self.nodes.iter().sum::<f64>().max(1.0);
        (0..4)
            .map(|part| {
                let mean = self.mean(part);
                let squares = self.sums.iter().zip(&self.nodes);
                let sum: f64 = squares.map(|(load, count)| count * (load[part] / count - mean).powi(2)).sum();
                (sum / node_count).sqrt()
            })
            .sum()
    }
}

fn load(all_groups: &AllGroups<'_>, service: usize) -> [f64; 4] {
    all_groups.problem.services[service].load.map(|part| part as f64 / LOAD_UNIT as f64)
}

/// Moves instances from or to the groups furthest from the mean, as long as each move lowers the deviation by at
/// least `min_gain`.
pub fn balance_load(all_groups: &AllGroups<'_>, min_gain: f64, max_length: usize) -> BalancedGroups {
    let mut state = State::new(&all_groups.problem, &all_groups.problem.start_placements);
    let initial_loads = Loads::new(all_groups, &state);
    let mut loads = initial_loads.clone();
    let mut moves: Vec<PlannedMove> = Vec::new();
    while moves.len() < max_length {
        let Some(next) = make_best_move(all_groups, &mut state, &mut loads, &moves, min_gain) else { break };
        moves.push(next);
    }
    let reachable: Vec<usize> = loads
        .groups
        .iter()
        .flat_map(|&group| partition::connected_groups(all_groups.cluster, group))
        .collect();
    let groups = (0..loads.groups.len())
        .map(|index| GroupLoad {
            group: loads.groups[index],
            load_before: initial_loads.per_node(index),
            load_after: loads.per_node(index),
            // A group to which others can send instances is not alone.
            exclusion_reason: all_groups.exclusion_reason(loads.groups[index]).filter(
                |reason| match reason {
                    ExclusionReason::NoConnectedGroup => !reachable.contains(&loads.groups[index]),
                    ExclusionReason::InterGroupMoves => true,
                },
            ),
        })
        .collect();
    BalancedGroups {
        groups,
        deviation_before: initial_loads.deviation(),
        deviation_after: loads.deviation(),
        moves,
    }
}

/// Makes the move that lowers the deviation most for the group furthest from the mean; if that group has none, for the next
/// one.
fn make_best_move(
    all_groups: &AllGroups<'_>,
    state: &mut State<'_>,
    loads: &mut Loads,
    moves: &[PlannedMove],
    min_gain: f64,
) -> Option<PlannedMove> {
    if !all_groups.inter_group_moves {
        return None;
    }
    let before = loads.deviation();
    let mut outliers: Vec<usize> = (0..loads.groups.len()).collect();
    outliers.sort_by(|&left, &right| {
        loads.distance(right).total_cmp(&loads.distance(left)).then(left.cmp(&right))
    });
    for outlier in outliers {
        let outlier = loads.groups[outlier];
        // Each instance moves at most once, so that no move is reversed.
        let pairs = pairs(all_groups, state, loads, outlier);
        let mut gains: Vec<(f64, usize, usize)> = pairs
            .into_iter()
            .filter(|(service, _)| !moves.iter().any(|planned| planned.service == *service))
            .map(|(service, target)| {
                let current_group = all_groups.group_of(state.placement(service).primary);
                move_load(all_groups, loads, service, current_group, target);
                let gain = before - loads.deviation();
                move_load(all_groups, loads, service, target, current_group);
                (gain, service, target)
            })
            .filter(|(gain, ..)| *gain >= min_gain.max(1e-9))
            .collect();
        gains.sort_by(|left, right| {
            right.0.total_cmp(&left.0).then((left.1, left.2).cmp(&(right.1, right.2)))
        });
        for (_, service, target) in gains {
            let from = state.placement(service);
            let nodes = all_groups.open_nodes(state, target);
            if let Ok(steps) = move_within_limits(state, service, nodes) {
                move_load(all_groups, loads, service, all_groups.group_of(from.primary), target);
                return Some(PlannedMove::new(all_groups, service, from, steps));
            }
        }
    }
    None
}

/// Returns the moves that take load from or to a group: instance and target group.
fn pairs(
    all_groups: &AllGroups<'_>,
    state: &State<'_>,
    loads: &Loads,
    outlier: usize,
) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (service, problem_service) in all_groups.problem.services.iter().enumerate() {
        let placement = state.placement(service);
        let current_group = all_groups.group_of(placement.primary);
        let in_one_group = placement.nodes().all(|node| all_groups.group_of(node) == current_group);
        if !problem_service.is_movable || !in_one_group {
            continue;
        }
        for &target in &loads.groups {
            let involves_outlier = target != current_group && (current_group == outlier || target == outlier);
            if involves_outlier
                && !demotes(all_groups.allocation(current_group), all_groups.allocation(target))
                && partition::check_move(all_groups.cluster, problem_service.instance, target).is_ok()
            {
                pairs.push((service, target));
            }
        }
    }
    pairs
}

/// Returns `true` for a move from a Preferred group to one of LastResort, which balancing must not make.
fn demotes(current_group: Allocation, target: Allocation) -> bool {
    current_group == Allocation::Preferred && target == Allocation::LastResort
}

fn move_load(all_groups: &AllGroups<'_>, loads: &mut Loads, service: usize, from: usize, to: usize) {
    let mut load = load(all_groups, service);
    if all_groups.problem.start_placements[service].secondary.is_some() {
        load[2] *= 2.0;
    }
    loads.add(from, load, -1.0);
    loads.add(to, load, 1.0);
}
