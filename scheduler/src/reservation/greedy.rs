//! Placements without a search: several orders and rules in turn, then a repair of the remaining units.

use super::model::{Model, Sums};
use super::placement_trial::PlacementTrial;
use super::unit::PlacementUnit;
use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A placement of some or all units.
#[derive(Clone, Debug)]
pub(super) struct Attempt<'m> {
    /// The cluster with this placement.
    pub(super) trial: PlacementTrial<'m>,
    /// The units to be placed: those of failed nodes, and those that are preempted.
    pub(super) units: Vec<PlacementUnit>,
    /// Node of each unit; `None` if it is not placed.
    pub(super) nodes: Vec<Option<u32>>,
}

impl Attempt<'_> {
    pub(super) fn is_complete(&self) -> bool {
        self.nodes.iter().all(Option::is_some)
    }

    pub(super) fn unplaced_units(&self) -> impl Iterator<Item = &PlacementUnit> {
        self.units.iter().zip(&self.nodes).filter(|(_, node)| node.is_none()).map(|(unit, _)| unit)
    }
}

/// The choice among the nodes that fit.
#[derive(Clone, Copy, Debug)]
enum NodeChoice {
    /// The next node in a fixed order, so that few nodes are examined.
    Next,
    /// The node with the least free capacity.
    LeastFree,
    /// The node with the most free capacity.
    MostFree,
}

/// Places the largest units first, each on the next node that fits.
pub(super) fn place_quickly<'m>(
    model: &'m Model,
    trial: &PlacementTrial<'m>,
    units: &[PlacementUnit],
) -> Attempt<'m> {
    attempt(model, trial, units, &by_size(model, units), NodeChoice::Next)
}

/// Returns the best of several attempts: the first complete attempt, or else the attempt with the fewest remaining
/// units.
pub(super) fn best_attempt<'m>(
    model: &'m Model,
    trial: &PlacementTrial<'m>,
    units: &[PlacementUnit],
    first: Attempt<'m>,
) -> Attempt<'m> {
    let by_size = by_size(model, units);
    let choices: Vec<usize> = units.iter().map(|unit| unit.candidates.count()).collect();
    let mut by_choice = by_size.clone();
    by_choice.sort_by_key(|index| choices[*index]);
    let mut best_attempt = first;
    let mut steps = 0;
    for (order, rule) in [
        (&by_choice, NodeChoice::LeastFree),
        (&by_size, NodeChoice::LeastFree),
        (&by_choice, NodeChoice::MostFree),
    ] {
        let attempt_result = attempt(model, trial, units, order, rule);
        steps += attempt_result.trial.steps();
        if attempt_result.unplaced_units().count() < best_attempt.unplaced_units().count() {
            best_attempt = attempt_result;
        }
        if best_attempt.is_complete() {
            break;
        }
    }
    best_attempt.trial.add_steps(steps);
    best_attempt
}

fn by_size(model: &Model, units: &[PlacementUnit]) -> Vec<usize> {
    let mut total: Sums = [0; 3];
    for node in &model.nodes {
        for (total, limit) in total.iter_mut().zip(node.limits) {
            *total += limit.unwrap_or(0);
        }
    }
    let sizes: Vec<f64> = units.iter().map(|unit| unit.size(&total)).collect();
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by(|a, b| sizes[*b].total_cmp(&sizes[*a]));
    order
}

fn attempt<'m>(
    model: &'m Model,
    trial: &PlacementTrial<'m>,
    units: &[PlacementUnit],
    order: &[usize],
    rule: NodeChoice,
) -> Attempt<'m> {
    let mut attempt = Attempt { trial: trial.clone(), units: units.to_vec(), nodes: vec![None; units.len()] };
    place_in_order(model, &mut attempt, order, rule);
    if !attempt.is_complete() {
        place_remaining_by_swaps(&mut attempt);
    }
    attempt
}

fn place_in_order(model: &Model, attempt: &mut Attempt<'_>, order: &[usize], rule: NodeChoice) {
    let mut next = 0;
    for index in order {
        let unit = &attempt.units[*index];
        let trial = &mut attempt.trial;
        let node = match rule {
            NodeChoice::Next => {
                let count = model.nodes_by_free_capacity.len();
                let free_position = (0..count).map(|step| (next + step) % count).find(|position| {
                    let node = model.nodes_by_free_capacity[*position];
                    trial.fits(unit, node)
                });
                free_position.map(|position| {
                    next = position + 1;
                    model.nodes_by_free_capacity[position]
                })
            }
            NodeChoice::LeastFree => fitting_nodes(trial, unit)
                .into_iter()
                .min_by_key(|node| (remaining_share(trial, unit, *node), *node)),
            NodeChoice::MostFree => fitting_nodes(trial, unit)
                .into_iter()
                .max_by_key(|node| (remaining_share(trial, unit, *node), Reverse(*node))),
        };
        if let Some(node) = node {
            trial.place(unit, node);
            attempt.nodes[*index] = Some(node);
        }
    }
}

/// Returns the nodes that fit in the current state of the trial.
pub(super) fn fitting_nodes(trial: &PlacementTrial<'_>, unit: &PlacementUnit) -> Vec<u32> {
    nodes_of(unit).filter(|node| trial.fits(unit, *node)).collect()
}

/// Returns the candidate nodes of a unit by number.
pub(super) fn nodes_of(unit: &PlacementUnit) -> impl Iterator<Item = u32> + '_ {
    unit.candidates.iter().filter_map(|index| u32::try_from(index).ok())
}

/// Returns the share of a node's capacity that remains after placing the unit, in millionths, for the scarcest of the
/// requested amounts.
fn remaining_share(trial: &PlacementTrial<'_>, unit: &PlacementUnit, node: u32) -> i128 {
    let shares = (0..3).filter_map(|kind| {
        let requests = unit.requests[kind]?;
        let free = trial.free(node, kind)?;
        let total = free + trial.used(node)[kind];
        (total > 0).then(|| (free - requests).saturating_mul(1_000_000) / total)
    });
    shares.min().unwrap_or(1_000_000)
}

/// Places remaining units where a placed unit can move to another node.
fn place_remaining_by_swaps(attempt: &mut Attempt<'_>) {
    for index in 0..attempt.units.len() {
        if attempt.nodes[index].is_none() {
            let _ = swap_in(attempt, index);
        }
    }
}

fn swap_in(attempt: &mut Attempt<'_>, index: usize) -> Option<()> {
    let Attempt { trial, units, nodes } = attempt;
    let unit = &units[index];
    for other in 0..units.len() {
        let Some(node) = nodes[other] else { continue };
        if !unit.candidates.contains(node as usize) {
            continue;
        }
        trial.unplace(&units[other], node);
        if trial.fits(unit, node) {
            trial.place(unit, node);
            let elsewhere = nodes_of(&units[other]).find(|node| trial.fits(&units[other], *node));
            if let Some(elsewhere) = elsewhere {
                trial.place(&units[other], elsewhere);
                nodes[other] = Some(elsewhere);
                nodes[index] = Some(node);
                return Some(());
            }
            trial.unplace(unit, node);
        }
        trial.place(&units[other], node);
    }
    None
}

/// Places units while services of lower priority are preempted. The highest priority comes first, each on the node
/// where the least important services have to leave.
pub(super) fn place_with_preemption<'m>(
    model: &'m Model,
    trial: &PlacementTrial<'m>,
    units: &[PlacementUnit],
    failed: &[u32],
) -> Attempt<'m> {
    let mut attempt = Attempt { trial: trial.clone(), units: Vec::new(), nodes: Vec::new() };
    let mut pending = units.to_vec();
    let mut highest: BTreeMap<u32, i32> = BTreeMap::new();
    while let Some(unit) = remove_most_important(&mut pending) {
        let trial = &mut attempt.trial;
        let free_node = fitting_nodes(trial, &unit)
            .into_iter()
            .min_by_key(|node| (remaining_share(trial, &unit, *node), *node));
        let placement = match free_node {
            Some(node) => Some((node, Vec::new())),
            None => nodes_of(&unit)
                .filter_map(|node| {
                    let min_priority = highest.get(&node).copied().unwrap_or(unit.lowest_priority);
                    let leaving_units = cheapest_preemption(model, trial, &unit, node, min_priority, failed)?;
                    let cost: Vec<i32> = leaving_units.iter().map(|unit| unit.highest_priority).collect();
                    Some((cost, node, leaving_units))
                })
                .min_by(|left, right| (&left.0, left.1).cmp(&(&right.0, right.1)))
                .map(|(_, node, leaving_units)| (node, leaving_units)),
        };
        let node = placement.map(|(node, leaving_units)| {
            for other in leaving_units {
                for member in &other.members {
                    trial.remove(*member);
                }
                pending.push(other);
            }
            trial.place(&unit, node);
            highest.entry(node).or_insert(unit.lowest_priority);
            node
        });
        attempt.units.push(unit);
        attempt.nodes.push(node);
    }
    attempt
}

/// Removes and returns the unit of the highest priority; among units of equal priority, the unit with the fewest
/// candidates.
pub(super) fn remove_most_important<U: Borrow<PlacementUnit>>(pending: &mut Vec<U>) -> Option<U> {
    fn order(unit: &PlacementUnit) -> (Reverse<i32>, usize, &[u32]) {
        (Reverse(unit.lowest_priority), unit.candidates.count(), &unit.members)
    }
    let by_order =
        |left: &usize, right: &usize| order(pending[*left].borrow()).cmp(&order(pending[*right].borrow()));
    let index = (0..pending.len()).min_by(by_order)?;
    Some(pending.swap_remove(index))
}

/// Returns the units that have to leave so that a unit fits, highest priority first. The most important units are kept if
/// possible.
fn cheapest_preemption(
    model: &Model,
    trial: &mut PlacementTrial<'_>,
    unit: &PlacementUnit,
    node: u32,
    min_priority: i32,
    failed: &[u32],
) -> Option<Vec<PlacementUnit>> {
    let mut leaving_units = PlacementUnit::preemptible_units(model, trial, node, min_priority, failed);
    leaving_units.sort_by_key(|other| (Reverse(other.highest_priority), other.members.clone()));
    for member in leaving_units.iter().flat_map(|other| &other.members) {
        trial.remove(*member);
    }
    let fits = trial.fits(unit, node);
    let mut position = 0;
    while fits && position < leaving_units.len() {
        let members = leaving_units[position].members.clone();
        for member in &members {
            trial.undo_remove(*member);
        }
        if trial.fits(unit, node) {
            leaving_units.remove(position);
        } else {
            for member in &members {
                trial.remove(*member);
            }
            position += 1;
        }
    }
    for member in leaving_units.iter().flat_map(|other| &other.members) {
        trial.undo_remove(*member);
    }
    fits.then_some(leaving_units)
}
