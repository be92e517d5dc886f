//! The Static score: how even and how low the load would be with the service on each candidate, combined by TOPSIS.
//!
//! Source: Hwang and Yoon, Multiple Attribute Decision Making, 1981; SCHEDULING section 1 for columns and weights.

use crate::view::{ServiceFacts, View};
use ha_api_types::quantity::{Amounts, Quantity};
use std::collections::BTreeMap;

/// Weights of: root-mean-square cpu, highest cpu, root-mean-square memory, highest memory.
const WEIGHTS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// The distance of each candidate from the ideal, in millionths; lower is better.
pub fn loads(view: &View, name: &str, service: &ServiceFacts, candidates: &[&str]) -> BTreeMap<String, u64> {
    let rows: Vec<[f64; 4]> = candidates.iter().map(|node| columns(view, name, service, node)).collect();
    candidates
        .iter()
        .zip(closeness(&rows))
        .map(|(node, far)| ((*node).to_owned(), to_millionths(far)))
        .collect()
}

fn columns(view: &View, name: &str, service: &ServiceFacts, candidate: &str) -> [f64; 4] {
    let cpu = shares(view, name, service, candidate, |amounts| amounts.cpu);
    let memory = shares(view, name, service, candidate, |amounts| amounts.memory);
    [root_mean_square(&cpu), highest(&cpu), root_mean_square(&memory), highest(&memory)]
}

/// The share of each node's capacity that is asked for, with the service on the candidate.
fn shares(
    view: &View,
    name: &str,
    service: &ServiceFacts,
    candidate: &str,
    pick: fn(&Amounts) -> Option<Quantity>,
) -> Vec<f64> {
    view.nodes
        .iter()
        .filter(|(_, node)| node.online.is_ok())
        .map(|(node_name, node)| {
            let capacity = pick(&node.capacity).unwrap_or_default().as_f64();
            let own = if node_name == candidate {
                pick(&service.requests).unwrap_or_default().as_f64()
            } else {
                0.0
            };
            let others: f64 = view
                .users_of(node_name, name)
                .filter_map(|(_, facts)| pick(&facts.requests))
                .map(Quantity::as_f64)
                .sum();
            let reserved = pick(&node.reserved).unwrap_or_default().as_f64();
            if capacity > 0.0 { (own + others + reserved) / capacity } else { 0.0 }
        })
        .collect()
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
