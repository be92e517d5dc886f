//! Joint placement of several services, for cases in which choosing one node at a time leaves a service without a node.

use super::exact::{SearchResult, search};
use super::greedy::{best_attempt, fitting_nodes, place_quickly};
use super::model::Model;
use super::placement_trial::PlacementTrial;
use super::unit::{PlacementUnit, waiting_units};
use crate::view::View;
use ha_api_types::cluster::ReservationBasis;
use ha_api_types::id::{NodeName, ResourceName};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of candidates that are examined for one set of services.
const MAX_EFFORT: u64 = 20_000;
/// Limit on the square of the number of units times the number of nodes, which corresponds to some tenths of a second.
/// Up to this limit, less important units may be omitted one at a time; beyond it, either all units are placed or none.
const MAX_PAIRINGS: usize = 1_000_000;

/// Chooses nodes for several services together, by name, so that as many of them as possible are placed. A service is
/// not omitted in favor of less important services.
///
/// The services in `unplaced` count as using no node, regardless of the view. All others stay on their nodes, and no
/// service is preempted. Services that cannot be placed are missing in the result. A node on which a service failed to
/// start is not eligible for it.
///
/// Guarantees: deterministic. All services of the result can start on their nodes at the same time: no hard limit and
/// no strict rule excludes a node. If a placement of all services exists, and the search does not reach its limit, the
/// result contains all services.
pub fn place_jointly(view: &View, unplaced: &BTreeSet<ResourceName>) -> BTreeMap<ResourceName, NodeName> {
    let mut view = view.clone();
    // Recovery uses these settings, regardless of those of the failover capacity check.
    view.reservation.count_stopped = false;
    view.reservation.basis = ReservationBasis::Requests;
    view.services.change_all(|name, facts| {
        if unplaced.contains(name) {
            facts.used_nodes.clear();
        }
    });
    let model = Model::of(view);
    let trial = PlacementTrial::new(&model);
    let mut units = waiting_units(&model, unplaced);
    units.retain(|unit| !fitting_nodes(&trial, unit).is_empty());
    units.sort_by_key(|unit| {
        (Reverse(unit.highest_priority), unit.members.iter().map(|member| &model.service(*member).name).min())
    });
    let placed = place_all(&model, &trial, &units).or_else(|| {
        if units.len() * units.len() * model.nodes.len() > MAX_PAIRINGS {
            return None;
        }
        let mut units_to_place: Vec<PlacementUnit> = Vec::new();
        let mut placed = None;
        for unit in &units {
            units_to_place.push(unit.clone());
            match place_all(&model, &trial, &units_to_place) {
                Some(placement) => placed = Some(placement),
                None => drop(units_to_place.pop()),
            }
        }
        placed
    });
    let with_names =
        |(service, node): (u32, u32)| (model.service(service).name.clone(), model.node(node).name.clone());
    placed.into_iter().flatten().map(with_names).collect()
}

/// Returns a placement of all these units, as pairs of service and node numbers; `None` if none is found.
fn place_all(model: &Model, trial: &PlacementTrial<'_>, units: &[PlacementUnit]) -> Option<Vec<(u32, u32)>> {
    let mut attempt = place_quickly(model, trial, units);
    if !attempt.is_complete() {
        attempt = best_attempt(model, trial, units, attempt);
    }
    if !attempt.is_complete() {
        attempt = match search(model, trial, units, MAX_EFFORT) {
            SearchResult::Placement(attempt) => attempt,
            SearchResult::Nothing | SearchResult::Undecided => return None,
        };
    }
    let placed = attempt.units.iter().zip(&attempt.nodes).filter_map(|(unit, node)| Some((unit, (*node)?)));
    Some(placed.flat_map(|(unit, node)| unit.members.iter().map(move |member| (*member, node))).collect())
}

#[cfg(test)]
mod tests;
