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
    pub before: f64,
    /// Load per node after the moves.
    pub after: f64,
    /// Reason why the group is skipped; `None` if it is considered.
    pub skipped: Option<ExclusionReason>,
}

/// Moves that balance the load.
#[derive(Clone, Debug, PartialEq)]
pub struct BalancedGroups {
    /// The groups with online nodes, in the order of the cluster.
    pub groups: Vec<GroupLoad>,
    /// The deviation before the moves.
    pub before: f64,
    /// The deviation after the moves.
    pub after: f64,
    /// The moves, in order.
    pub moved: Vec<PlannedMove>,
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
        let online = |group: usize| {
            all_groups
                .hosts(group)
                .into_iter()
                .filter(|&host| !all_groups.problem.hosts[host].offline)
                .count()
        };
        let groups: Vec<usize> = all_groups.groups().into_iter().filter(|&group| online(group) > 0).collect();
        let nodes = groups.iter().map(|&group| online(group) as f64).collect();
        let mut loads = Loads { sums: vec![[0.0; 4]; groups.len()], groups, nodes };
        for guest in 0..all_groups.problem.guests.len() {
            let placement = state.placement(guest);
            let [cpu, memory, disk, network] = load(all_groups, guest);
            loads.add(all_groups.group_of(placement.primary), [cpu, memory, disk, network], 1.0);
            if let Some(secondary) = placement.secondary {
                loads.add(all_groups.group_of(secondary), [0.0, 0.0, disk, 0.0], 1.0);
            }
        }
        loads
    }

    fn index(&self, group: usize) -> Option<usize> {
        self.groups.iter().position(|known| *known == group)
    }

    fn add(&mut self, group: usize, load: [f64; 4], sign: f64) {
        if let Some(index) = self.index(group) {
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
        let nodes = self.nodes.iter().sum::<f64>().max(1.0);
        (0..4)
            .map(|part| {
                let mean = self.mean(part);
                let squares = self.sums.iter().zip(&self.nodes);
                let sum: f64 = squares.map(|(load, count)| count * (load[part] / count - mean).powi(2)).sum();
                (sum / nodes).sqrt()
            })
            .sum()
    }
}

fn load(all_groups: &AllGroups<'_>, guest: usize) -> [f64; 4] {
    all_groups.problem.guests[guest].load.map(|part| part as f64 / LOAD_UNIT as f64)
}

/// Moves instances from or to the groups furthest from the mean, as long as each move lowers the deviation by at
/// least `min_gain`.
pub fn balance_load(all_groups: &AllGroups<'_>, min_gain: f64, max_length: usize) -> BalancedGroups {
    let mut state = State::new(&all_groups.problem, &all_groups.problem.start);
    let start = Loads::new(all_groups, &state);
    let mut loads = start.clone();
    let mut moved: Vec<PlannedMove> = Vec::new();
    while moved.len() < max_length {
        let Some(next) = next(all_groups, &mut state, &mut loads, &moved, min_gain) else { break };
        moved.push(next);
    }
    let reachable: Vec<usize> = loads
        .groups
        .iter()
        .flat_map(|&group| partition::connected_groups(all_groups.cluster, group))
        .collect();
    let groups = (0..loads.groups.len())
        .map(|index| GroupLoad {
            group: loads.groups[index],
            before: start.per_node(index),
            after: loads.per_node(index),
            // A group to which others can send instances is not alone.
            skipped: all_groups.exclusion_reason(loads.groups[index]).filter(|reason| match reason {
                ExclusionReason::Alone => !reachable.contains(&loads.groups[index]),
                ExclusionReason::InterGroupMoves => true,
            }),
        })
        .collect();
    BalancedGroups { groups, before: start.deviation(), after: loads.deviation(), moved }
}

/// Makes the move that lowers the deviation most for the group furthest from the mean; if that group has none, for the next
/// one.
fn next(
    all_groups: &AllGroups<'_>,
    state: &mut State<'_>,
    loads: &mut Loads,
    moved: &[PlannedMove],
    min_gain: f64,
) -> Option<PlannedMove> {
    if !all_groups.inter_group_moves {
        return None;
    }
    let before = loads.deviation();
    let mut outliers: Vec<usize> = (0..loads.groups.len()).collect();
    outliers
        .sort_by(|&one, &other| loads.distance(other).total_cmp(&loads.distance(one)).then(one.cmp(&other)));
    for outlier in outliers {
        let outlier = loads.groups[outlier];
        // Each instance moves at most once, so that no move is reversed.
        let pairs = pairs(all_groups, state, loads, outlier);
        let mut gains: Vec<(f64, usize, usize)> = pairs
            .into_iter()
            .filter(|(guest, _)| !moved.iter().any(|moved| moved.guest == *guest))
            .map(|(guest, target)| {
                let current_group = all_groups.group_of(state.placement(guest).primary);
                shift(all_groups, loads, guest, current_group, target);
                let gain = before - loads.deviation();
                shift(all_groups, loads, guest, target, current_group);
                (gain, guest, target)
            })
            .filter(|(gain, ..)| *gain >= min_gain.max(1e-9))
            .collect();
        gains.sort_by(|one, other| other.0.total_cmp(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
        for (_, guest, target) in gains {
            let from = state.placement(guest);
            let hosts = all_groups.open_hosts(state, target);
            if let Ok(steps) = move_within_limits(state, guest, hosts) {
                shift(all_groups, loads, guest, all_groups.group_of(from.primary), target);
                return Some(PlannedMove::new(all_groups, guest, from, steps));
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
    for (guest, facts) in all_groups.problem.guests.iter().enumerate() {
        let placement = state.placement(guest);
        let current_group = all_groups.group_of(placement.primary);
        let in_one_group = placement.nodes().all(|host| all_groups.group_of(host) == current_group);
        if !facts.movable || !in_one_group {
            continue;
        }
        for &target in &loads.groups {
            let involves_outlier = target != current_group && (current_group == outlier || target == outlier);
            if involves_outlier
                && !demotes(all_groups.allocation(current_group), all_groups.allocation(target))
                && partition::check_move(all_groups.cluster, facts.instance, target).is_ok()
            {
                pairs.push((guest, target));
            }
        }
    }
    pairs
}

/// Returns `true` for a move from a Preferred group to one of LastResort, which balancing must not make.
fn demotes(current_group: Allocation, target: Allocation) -> bool {
    current_group == Allocation::Preferred && target == Allocation::LastResort
}

fn shift(all_groups: &AllGroups<'_>, loads: &mut Loads, guest: usize, from: usize, to: usize) {
    let mut load = load(all_groups, guest);
    if all_groups.problem.start[guest].secondary.is_some() {
        load[2] *= 2.0;
    }
    loads.add(from, load, -1.0);
    loads.add(to, load, 1.0);
}
