//! The score of modes Static and Dynamic: how even and how low the load would be with the service on each candidate, combined
//! by TOPSIS.
//!
//! Source: Hwang and Yoon, Multiple Attribute Decision Making, 1981; SCHEDULING section 1 for columns and weights.

use crate::rebalance::Move;
use crate::unit::{Unit, sum};
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::quantity::{Amounts, Quantity};
use std::collections::BTreeMap;

/// Weights of: root-mean-square cpu, highest cpu, root-mean-square memory, highest memory.
const WEIGHTS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// The distance of each candidate from the ideal, in millionths; lower is better.
pub fn loads(view: &View, unit: &Unit<'_>, candidates: &[&str]) -> BTreeMap<String, u64> {
    let own = unit.load(view.settings.mode);
    let nodes = nodes(view, unit);
    let rows: Vec<[f64; 4]> = candidates.iter().map(|candidate| columns(&nodes, &own, candidate)).collect();
    candidates
        .iter()
        .zip(closeness(&rows))
        .map(|(node, far)| ((*node).to_owned(), to_millionths(far)))
        .collect()
}

/// Those that carry load: all that are online.
fn nodes<'a>(view: &'a View, unit: &Unit<'_>) -> Vec<Node<'a>> {
    view.nodes
        .iter()
        .filter(|(_, node)| node.online.is_ok())
        .map(|(name, facts)| Node { name, facts, others: others(view, unit, name) })
        .collect()
}

/// Which of these moves has the best outcome: each is judged by what all nodes would carry after it; the first of equals.
pub fn best_move(view: &View, moves: &[Move]) -> Option<usize> {
    let mode = view.settings.mode;
    let nobody = Unit::new(Vec::new());
    let nodes = nodes(view, &nobody);
    let rows: Vec<[f64; 4]> = moves
        .iter()
        .map(|planned| {
            let own = view.services.get(&planned.service).map(|facts| facts.load(mode)).unwrap_or_default();
            let mut nodes = nodes.clone();
            for node in nodes.iter_mut().filter(|node| node.name == planned.from) {
                node.others = without(&node.others, &own);
            }
            columns(&nodes, &own, &planned.to)
        })
        .collect();
    let closeness = closeness(&rows);
    (0..moves.len()).min_by(|one, other| closeness[*one].total_cmp(&closeness[*other]))
}

fn without(all: &Amounts, own: &Amounts) -> Amounts {
    let less = |all: Option<Quantity>, own: Option<Quantity>| {
        all.map(|all| Quantity::from_milli(all.milli().saturating_sub(own.unwrap_or_default().milli())))
    };
    Amounts {
        cpu: less(all.cpu, own.cpu),
        memory: less(all.memory, own.memory),
        disk: less(all.disk, own.disk),
    }
}

/// A node that carries load, without the unit that a place is looked for.
#[derive(Clone)]
struct Node<'a> {
    name: &'a str,
    facts: &'a NodeFacts,
    others: Amounts,
}

/// What services use on a node that are no part of the unit: it leaves wherever it is.
fn others(view: &View, unit: &Unit<'_>, node: &str) -> Amounts {
    let users =
        view.services.iter().filter(|(name, facts)| facts.uses.contains(node) && !unit.contains(name));
    sum(users.map(|(_, facts)| facts.load(view.settings.mode)))
}

fn columns(nodes: &[Node<'_>], own: &Amounts, candidate: &str) -> [f64; 4] {
    let cpu = shares(nodes, own, candidate, |amounts| amounts.cpu);
    let memory = shares(nodes, own, candidate, |amounts| amounts.memory);
    [root_mean_square(&cpu), highest(&cpu), root_mean_square(&memory), highest(&memory)]
}

/// The share of each node's capacity that is in use, with the unit on the candidate.
fn shares(
    nodes: &[Node<'_>],
    own: &Amounts,
    candidate: &str,
    pick: fn(&Amounts) -> Option<Quantity>,
) -> Vec<f64> {
    let amount = |amounts: &Amounts| pick(amounts).unwrap_or_default().as_f64();
    nodes
        .iter()
        .map(|node| {
            let capacity = amount(&node.facts.capacity);
            let own = if node.name == candidate { amount(own) } else { 0.0 };
            let used = own + amount(&node.others) + amount(&node.facts.reserved);
            if capacity > 0.0 { used / capacity } else { 0.0 }
        })
        .collect()
}

/// What a candidate would carry with the unit there, in words: what the score's load is made of. `None` in mode Basic, where
/// services are counted.
pub fn carried(view: &View, unit: &Unit<'_>, candidate: &str) -> Option<String> {
    let mode = view.settings.mode;
    match mode {
        SchedulerMode::Basic => return None,
        SchedulerMode::Static | SchedulerMode::Dynamic => {}
    }
    let node = view.nodes.get(candidate)?;
    let users = view
        .services
        .iter()
        .filter(|(name, facts)| facts.uses.contains(candidate) && !unit.contains(name))
        .map(|(name, facts)| (name.as_str(), facts));
    let there = unit.members.iter().copied().chain(users);
    let (measured, asked): (Vec<_>, Vec<_>) = there.partition(|(_, facts)| facts.is_measured(mode));
    let load = |services: &[(&str, &ServiceFacts)]| sum(services.iter().map(|(_, facts)| facts.load(mode)));
    let all = sum([load(&measured), load(&asked), node.reserved].into_iter());
    let mut parts = Vec::new();
    for (services, how) in [(&measured, "measured"), (&asked, "by requests")] {
        if let [(name, _), more @ ..] = services.as_slice() {
            let and = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            parts.push(format!("{how} {name}{and}: {}", amounts_of(&load(services))));
        }
    }
    if node.reserved != Amounts::default() {
        parts.push(format!("outside hactl: {}", amounts_of(&node.reserved)));
    }
    let of = |what: &str, used: Option<Quantity>, capacity: Option<Quantity>| {
        let (used, capacity) = (used.unwrap_or_default(), capacity.filter(|capacity| capacity.milli() > 0)?);
        let percent = 100.0 * used.as_f64() / capacity.as_f64();
        Some(format!("{what} {used} of {capacity} ({percent:.0} %)"))
    };
    let shares: Vec<String> =
        [of("cpu", all.cpu, node.capacity.cpu), of("memory", all.memory, node.capacity.memory)]
            .into_iter()
            .flatten()
            .collect();
    let shares = if shares.is_empty() { "its capacity is not known".to_owned() } else { shares.join(", ") };
    Some(format!("with it there {shares}; {}", parts.join("; ")))
}

fn amounts_of(amounts: &Amounts) -> String {
    let (cpu, memory) = (amounts.cpu.unwrap_or_default(), amounts.memory.unwrap_or_default());
    format!("cpu {cpu} memory {memory}")
}

fn root_mean_square(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt()
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// For each row, its distance to the best as a share of its distances to best and worst: 0 is the best.
fn closeness(rows: &[[f64; 4]]) -> Vec<f64> {
    let norms: [f64; 4] =
        std::array::from_fn(|at| rows.iter().map(|row| row[at] * row[at]).sum::<f64>().sqrt());
    let weighted: Vec<[f64; 4]> = rows
        .iter()
        .map(|row| {
            std::array::from_fn(|at| if norms[at] > 0.0 { row[at] / norms[at] * WEIGHTS[at] } else { 0.0 })
        })
        .collect();
    let best: [f64; 4] =
        std::array::from_fn(|at| weighted.iter().map(|row| row[at]).fold(f64::INFINITY, f64::min));
    let worst: [f64; 4] = std::array::from_fn(|at| weighted.iter().map(|row| row[at]).fold(0.0, f64::max));
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
