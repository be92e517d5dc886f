//! Balancing of load between groups. Only the load determines the choice of the group.
//!
//! The load of a group is the load of its instances (cpu, memory, disk, network, as in the balancer's score) divided by
//! its online nodes. The total deviation is the deviation of that load over all nodes, summed over the four parts.

use super::elsewhere::place;
use super::partition;
use super::span::{Moved, Span, Stays};
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
    /// Reason for which the group is left out; `None` if it is considered.
    pub skipped: Option<Stays>,
}

/// Moves that balance the load.
#[derive(Clone, Debug, PartialEq)]
pub struct Levelled {
    /// The groups with online nodes, in the order of the cluster.
    pub groups: Vec<GroupLoad>,
    /// The deviation before the moves.
    pub before: f64,
    /// The deviation after the moves.
    pub after: f64,
    /// The moves, in order.
    pub moved: Vec<Moved>,
}

/// Loads of groups, from which the gain of a move follows.
#[derive(Clone)]
struct Loads {
    groups: Vec<usize>,
    nodes: Vec<f64>,
    sums: Vec<[f64; 4]>,
}

impl Loads {
    fn new(span: &Span<'_>, state: &State<'_>) -> Loads {
        let online = |group: usize| {
            span.hosts(group).into_iter().filter(|&host| !span.problem.hosts[host].offline).count()
        };
        let groups: Vec<usize> = span.groups().into_iter().filter(|&group| online(group) > 0).collect();
        let nodes = groups.iter().map(|&group| online(group) as f64).collect();
        let mut loads = Loads { sums: vec![[0.0; 4]; groups.len()], groups, nodes };
        for guest in 0..span.problem.guests.len() {
            let spot = state.spot(guest);
            let [cpu, memory, disk, network] = load(span, guest);
            loads.add(span.group_of(spot.primary), [cpu, memory, disk, network], 1.0);
            if let Some(secondary) = spot.secondary {
                loads.add(span.group_of(secondary), [0.0, 0.0, disk, 0.0], 1.0);
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

fn load(span: &Span<'_>, guest: usize) -> [f64; 4] {
    span.problem.guests[guest].load.map(|part| part as f64 / LOAD_UNIT as f64)
}

/// Moves instances from or to the groups furthest from the mean, as long as each move lowers the deviation by at
/// least `least_gain`.
pub fn level(span: &Span<'_>, least_gain: f64, most: usize) -> Levelled {
    let mut state = State::new(&span.problem, &span.problem.start);
    let start = Loads::new(span, &state);
    let mut loads = start.clone();
    let mut moved: Vec<Moved> = Vec::new();
    while moved.len() < most {
        let Some(next) = next(span, &mut state, &mut loads, &moved, least_gain) else { break };
        moved.push(next);
    }
    let reached: Vec<usize> =
        loads.groups.iter().flat_map(|&group| partition::neighbours(span.cluster, group)).collect();
    let groups = (0..loads.groups.len())
        .map(|index| GroupLoad {
            group: loads.groups[index],
            before: start.per_node(index),
            after: loads.per_node(index),
            // A group to which others can send instances is not alone.
            skipped: span.stays(loads.groups[index]).filter(|why| match why {
                Stays::Alone => !reached.contains(&loads.groups[index]),
                Stays::InterGroupMoves => true,
            }),
        })
        .collect();
    Levelled { groups, before: start.deviation(), after: loads.deviation(), moved }
}

/// Makes the move that lowers the deviation most for the group furthest from the mean; if that group has none, for the next
/// one.
fn next(
    span: &Span<'_>,
    state: &mut State<'_>,
    loads: &mut Loads,
    moved: &[Moved],
    least_gain: f64,
) -> Option<Moved> {
    if !span.inter_group_moves {
        return None;
    }
    let before = loads.deviation();
    let mut outliers: Vec<usize> = (0..loads.groups.len()).collect();
    outliers
        .sort_by(|&one, &other| loads.distance(other).total_cmp(&loads.distance(one)).then(one.cmp(&other)));
    for outlier in outliers {
        let outlier = loads.groups[outlier];
        // Each instance moves at most once, so that no move is reversed.
        let pairs = pairs(span, state, loads, outlier);
        let mut gains: Vec<(f64, usize, usize)> = pairs
            .into_iter()
            .filter(|(guest, _)| !moved.iter().any(|moved| moved.guest == *guest))
            .map(|(guest, target)| {
                let home = span.group_of(state.spot(guest).primary);
                shift(span, loads, guest, home, target);
                let gain = before - loads.deviation();
                shift(span, loads, guest, target, home);
                (gain, guest, target)
            })
            .filter(|(gain, ..)| *gain >= least_gain.max(1e-9))
            .collect();
        gains.sort_by(|one, other| other.0.total_cmp(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
        for (_, guest, target) in gains {
            let from = state.spot(guest);
            let hosts = span.open_hosts(state, target);
            if let Ok(steps) = place(state, guest, hosts) {
                shift(span, loads, guest, span.group_of(from.primary), target);
                return Some(Moved::new(span, guest, from, steps));
            }
        }
    }
    None
}

/// Returns the moves that take load from or to a group: instance and target group.
fn pairs(span: &Span<'_>, state: &State<'_>, loads: &Loads, outlier: usize) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (guest, facts) in span.problem.guests.iter().enumerate() {
        let spot = state.spot(guest);
        let home = span.group_of(spot.primary);
        let whole = spot.nodes().all(|host| span.group_of(host) == home);
        if !facts.movable || !whole {
            continue;
        }
        for &target in &loads.groups {
            let concerned = target != home && (home == outlier || target == outlier);
            if concerned
                && !demotes(span.allocation(home), span.allocation(target))
                && partition::admits(span.cluster, facts.instance, target).is_ok()
            {
                pairs.push((guest, target));
            }
        }
    }
    pairs
}

/// Returns `true` for a move from a Preferred group to one of LastResort, which balancing must not make.
fn demotes(home: Allocation, target: Allocation) -> bool {
    home == Allocation::Preferred && target == Allocation::LastResort
}

fn shift(span: &Span<'_>, loads: &mut Loads, guest: usize, from: usize, to: usize) {
    let mut load = load(span, guest);
    if span.problem.start[guest].secondary.is_some() {
        load[2] *= 2.0;
    }
    loads.add(from, load, -1.0);
    loads.add(to, load, 1.0);
}
