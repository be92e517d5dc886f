//! Places for several services at once, where choosing for one after the other leaves somebody over.

use super::exact::{Found, search};
use super::greedy::{best, fitting, quick};
use super::model::Model;
use super::trial::Trial;
use super::unit::{Unit, waiting};
use crate::view::View;
use ha_api_types::cluster::ReservationBasis;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Candidates that are looked at for one set of services.
const EFFORT: u64 = 20_000;
/// Units, times units, times nodes up to which the more important ones are tried without the others, some tenths of a second;
/// of more than that all find a place at once, or nobody is named.
const MOST_TRIED: usize = 1_000_000;

/// Where services that look for a place go, by name, so that as many of them find one as can: nobody who is more important
/// is left over for the sake of others.
///
/// They count as using no node, whatever the view says; all others stay where they are, and nobody makes room. Those that
/// are left over are missing. A node where a service failed to start is no place for it.
///
/// Guarantees: deterministic. The services that are named can all be started where it says, at once: no hard limit and no
/// strict rule speaks against it. If all have a place at once, and the search of it is not given up, all are named.
pub fn arrange(view: &View, looking: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut view = view.clone();
    // What recovery goes by, whatever the check of the reservation counts.
    view.reservation.count_stopped = false;
    view.reservation.basis = ReservationBasis::Requests;
    view.services.change_all(|name, facts| {
        if looking.contains(name) {
            facts.uses.clear();
        }
    });
    let model = Model::of(view);
    let mut trial = Trial::new(&model);
    let mut units = waiting(&model, looking);
    units.retain(|unit| !fitting(&mut trial, unit).is_empty());
    units.sort_by_key(|unit| {
        (Reverse(unit.most), unit.members.iter().map(|member| &model.service(*member).name).min())
    });
    let placed = at_once(&model, &trial, &units).or_else(|| {
        if units.len() * units.len() * model.nodes.len() > MOST_TRIED {
            return None;
        }
        let mut chosen: Vec<Unit> = Vec::new();
        let mut placed = None;
        for unit in &units {
            chosen.push(unit.clone());
            match at_once(&model, &trial, &chosen) {
                Some(found) => placed = Some(found),
                None => drop(chosen.pop()),
            }
        }
        placed
    });
    let named =
        |(service, node): (u32, u32)| (model.service(service).name.clone(), model.node(node).name.clone());
    placed.into_iter().flatten().map(named).collect()
}

/// A place for all of them, by number, if one is found.
fn at_once(model: &Model, trial: &Trial<'_>, units: &[Unit]) -> Option<Vec<(u32, u32)>> {
    let mut attempt = quick(model, trial, units);
    if !attempt.is_whole() {
        attempt = best(model, trial, units, attempt);
    }
    if !attempt.is_whole() {
        attempt = match search(model, trial, units, EFFORT) {
            Found::Placement(whole) => whole,
            Found::Nothing | Found::Undecided => return None,
        };
    }
    let placed = attempt.units.iter().zip(&attempt.nodes).filter_map(|(unit, node)| Some((unit, (*node)?)));
    Some(placed.flat_map(|(unit, node)| unit.members.iter().map(move |member| (*member, node))).collect())
}

#[cfg(test)]
mod tests;
