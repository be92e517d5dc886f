//! The score of modes Static and Dynamic. For each candidate, TOPSIS combines the root mean square and the maximum of
//! the nodes' load with the service on that candidate.
//!
//! Source: Hwang and Yoon, Multiple Attribute Decision Making, 1981; docs/placement.md describes the columns and
//! weights.

use crate::placement_query::{Candidate, PlacementQuery};
use crate::rebalance::Move;
use crate::services::{Sums, sums};
use crate::unit::{PlacementUnit, sum};
use crate::view::{ServiceFacts, View};
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::quantity::{Amounts, Quantity};

/// Weights of root-mean-square cpu, highest cpu, root-mean-square memory and highest memory.
const WEIGHTS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// Computes the distance of each candidate from the ideal, in millionths; lower is better.
pub(crate) fn loads(query: &PlacementQuery<'_>, candidates: &[Candidate<'_>]) -> Vec<u64> {
    let mode = query.view.settings.mode;
    let own_load = cpu_and_memory(&sums(&query.unit.load(mode)));
    let online_nodes = OnlineNodes::new(query);
    // All candidates are online nodes, and both lists are ordered by node name.
    let mut position = 0;
    let mut rows: Vec<[f64; 4]> = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        while online_nodes.nodes.get(position).is_some_and(|node| node.name < candidate.name) {
            position += 1;
        }
        rows.push(online_nodes.columns(&[(position, own_load)]));
    }
    closeness(&rows).into_iter().map(to_millionths).collect()
}

/// Returns the index of the move with the best outcome by the load of all nodes after the move; among equal moves, the
/// first.
pub fn best_move(view: &View, moves: &[Move]) -> Option<usize> {
    let empty_unit = PlacementUnit::new(Vec::new());
    let query = PlacementQuery::of(view, &empty_unit);
    let online_nodes = OnlineNodes::new(&query);
    let rows: Vec<[f64; 4]> = moves
        .iter()
        .map(|planned| {
            let names = planned.companions.iter().chain([&planned.service]);
            let loads = names.filter_map(|name| Some(view.services.get(name)?.load(view.settings.mode)));
            let own_load = cpu_and_memory(&sums(&sum(loads)));
            let changes = [(&planned.from, own_load.map(|own_load| -own_load)), (&planned.to, own_load)];
            let changes: Vec<_> = changes
                .into_iter()
                .filter_map(|(node, change)| Some((online_nodes.position(node)?, change)))
                .collect();
            online_nodes.columns(&changes)
        })
        .collect();
    let closeness = closeness(&rows);
    (0..moves.len()).min_by(|left, right| closeness[*left].total_cmp(&closeness[*right]))
}

/// Returns cpu and memory in units, from amounts in thousandths.
fn cpu_and_memory(sums: &Sums) -> [f64; 2] {
    [in_units(sums[0]), in_units(sums[1])]
}

fn in_units(milli: i128) -> f64 {
    // Most values fit into 64 bits, whose conversion is much faster and gives the same result.
    i64::try_from(milli).map_or(milli as f64, |milli| milli as f64) / 1e3
}

/// Load of all online nodes. With its aggregates, the columns after a change of one or two nodes are computed in
/// constant time.
struct OnlineNodes<'a> {
    nodes: Vec<OnlineNode<'a>>,
    /// Sum of squares of the shares of cpu and of memory.
    squares: [f64; 2],
    /// The three largest shares of cpu and of memory, with the indexes of their nodes.
    greatest: [[Option<(f64, usize)>; 3]; 2],
}

/// An online node with its capacity and load.
struct OnlineNode<'a> {
    name: &'a NodeName,
    capacity: [f64; 2],
    used: [f64; 2],
}

impl OnlineNode<'_> {
    fn share(&self, kind: usize, added: f64) -> f64 {
        if self.capacity[kind] > 0.0 { (self.used[kind] + added) / self.capacity[kind] } else { 0.0 }
    }
}

impl<'a> OnlineNodes<'a> {
    /// Collects all online nodes without the load of the unit.
    fn new(query: &'a PlacementQuery<'_>) -> OnlineNodes<'a> {
        let mode = query.view.settings.mode;
        let nodes = query.candidates().filter(|node| node.node.online.is_ok()).map(|node| {
            let services = [0, 1].map(|kind| in_units(node.outside_use.load(mode, kind)));
            let outside = cpu_and_memory(&sums(&node.node.reserved));
            OnlineNode {
                name: node.name,
                capacity: cpu_and_memory(&sums(&node.node.capacity)),
                used: [services[0] + outside[0], services[1] + outside[1]],
            }
        });
        let mut online_nodes =
            OnlineNodes { nodes: nodes.collect(), squares: [0.0; 2], greatest: [[None; 3]; 2] };
        for kind in 0..2 {
            for (index, node) in online_nodes.nodes.iter().enumerate() {
                let share = node.share(kind, 0.0);
                online_nodes.squares[kind] += share * share;
                let greatest = &mut online_nodes.greatest[kind];
                let rank = greatest.iter().position(|greatest_share| {
                    greatest_share.is_none_or(|(greatest_share, _)| greatest_share < share)
                });
                if let Some(rank) = rank {
                    greatest[rank..].rotate_right(1);
                    greatest[rank] = Some((share, index));
                }
            }
        }
        online_nodes
    }

    fn position(&self, node: &NodeName) -> Option<usize> {
        self.nodes.binary_search_by(|loaded| loaded.name.cmp(node)).ok()
    }

    /// Computes root-mean-square cpu, highest cpu, root-mean-square memory and highest memory after a change of at most
    /// two nodes. The values are rounded, so that they do not depend on the order of summation.
    #[expect(clippy::cast_possible_truncation, reason = "larger values are equally bad")]
    fn columns(&self, changes: &[(usize, [f64; 2])]) -> [f64; 4] {
        let rounded = |value: f64| ((value * 1e10 + 0.5) as i64) as f64 / 1e10;
        let (mut columns, count) = ([0.0; 4], self.nodes.len().max(1) as f64);
        for kind in 0..2 {
            let mut squares = self.squares[kind];
            let untouched = self.greatest[kind]
                .iter()
                .flatten()
                .find(|(_, index)| changes.iter().all(|(changed, _)| changed != index));
            let mut highest = untouched.map_or(0.0, |(share, _)| share.max(0.0));
            for (index, by) in changes {
                let (before, after) =
                    (self.nodes[*index].share(kind, 0.0), self.nodes[*index].share(kind, by[kind]));
                squares += after * after - before * before;
                highest = highest.max(after);
            }
            columns[2 * kind] = rounded((squares.max(0.0) / count).sqrt());
            columns[2 * kind + 1] = rounded(highest);
        }
        columns
    }
}

/// Describes the load of a candidate with the unit on it, which is the basis of the score. `None` in mode Basic, which
/// counts services.
pub fn describe_load(view: &View, unit: &PlacementUnit<'_>, candidate: &NodeName) -> Option<String> {
    let mode = view.settings.mode;
    match mode {
        SchedulerMode::Basic => return None,
        SchedulerMode::Static | SchedulerMode::Dynamic => {}
    }
    let node = view.nodes.get(candidate)?;
    let users = view.users_of(candidate).filter(|(name, _)| !unit.contains(name));
    let services_there = unit.members.iter().copied().chain(users);
    let (measured, requested): (Vec<_>, Vec<_>) =
        services_there.partition(|(_, facts)| facts.is_measured(mode));
    let load =
        |services: &[(&ResourceName, &ServiceFacts)]| sum(services.iter().map(|(_, facts)| facts.load(mode)));
    let all = sum([load(&measured), load(&requested), node.reserved].into_iter());
    let mut parts = Vec::new();
    for (services, basis) in [(&measured, "measured"), (&requested, "requested")] {
        if let [(name, _), more @ ..] = services.as_slice() {
            let omitted_text =
                if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            parts.push(format!("{basis} {name}{omitted_text}: {}", amounts_of(&load(services))));
        }
    }
    if node.reserved != Amounts::default() {
        parts.push(format!("outside hactl: {}", amounts_of(&node.reserved)));
    }
    let share_text = |amount_name: &str, used: Option<Quantity>, capacity: Option<Quantity>| {
        let (used, capacity) = (used.unwrap_or_default(), capacity.filter(|capacity| capacity.milli() > 0)?);
        let percent = 100.0 * used.as_f64() / capacity.as_f64();
        Some(format!("{amount_name} {used} of {capacity} ({percent:.0} %)"))
    };
    let shares: Vec<String> = [
        share_text("cpu", all.cpu, node.capacity.cpu),
        share_text("memory", all.memory, node.capacity.memory),
    ]
    .into_iter()
    .flatten()
    .collect();
    let shares =
        if shares.is_empty() { "capacity of the node is unknown".to_owned() } else { shares.join(", ") };
    Some(format!("load with the service: {shares}; {}", parts.join("; ")))
}

fn amounts_of(amounts: &Amounts) -> String {
    let (cpu, memory) = (amounts.cpu.unwrap_or_default(), amounts.memory.unwrap_or_default());
    format!("cpu {cpu} memory {memory}")
}

/// Computes, for each row, the distance to the best row divided by the sum of the distances to the best and the worst
/// row. 0 is the best.
fn closeness(rows: &[[f64; 4]]) -> Vec<f64> {
    let norms: [f64; 4] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column] * row[column]).sum::<f64>().sqrt());
    let weighted: Vec<[f64; 4]> = rows
        .iter()
        .map(|row| {
            std::array::from_fn(|column| {
                if norms[column] > 0.0 { row[column] / norms[column] * WEIGHTS[column] } else { 0.0 }
            })
        })
        .collect();
    let best: [f64; 4] =
        std::array::from_fn(|column| weighted.iter().map(|row| row[column]).fold(f64::INFINITY, f64::min));
    let worst: [f64; 4] =
        std::array::from_fn(|column| weighted.iter().map(|row| row[column]).fold(0.0, f64::max));
    let distance = |row: &[f64; 4], to: &[f64; 4]| {
        row.iter().zip(to).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
    };
    weighted
        .iter()
        .map(|row| {
            let (to_best, to_worst) = (distance(row, &best), distance(row, &worst));
            if to_best + to_worst > 0.0 { to_best / (to_best + to_worst) } else { 0.0 }
        })
        .collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share between 0 and 1")]
fn to_millionths(share: f64) -> u64 {
    (share * 1e6).round() as u64
}

#[cfg(test)]
mod tests;
