//! The complete search for a placement, within a limited number of steps.

use super::greedy::{Attempt, fitting_nodes, nodes_of, remove_most_important};
use super::model::Model;
use super::placement_trial::PlacementTrial;
use super::unit::PlacementUnit;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

#[derive(Debug)]
pub(super) enum SearchResult<'m> {
    /// A placement of all units.
    Placement(Attempt<'m>),
    /// Proof that no placement exists.
    Nothing,
    /// The limit of steps was reached before a result.
    Undecided,
}

struct OutOfSteps;

/// Searches for a placement of all units, with all other services in place.
pub(super) fn search<'m>(
    model: &'m Model,
    trial: &PlacementTrial<'m>,
    units: &[PlacementUnit],
    steps: u64,
) -> SearchResult<'m> {
    let attempt = Attempt { trial: trial.clone(), units: units.to_vec(), nodes: vec![None; units.len()] };
    let mut search = Search { model, limit: trial.steps() + steps, attempt };
    match search.place_remaining() {
        Ok(true) => SearchResult::Placement(search.attempt),
        Ok(false) => SearchResult::Nothing,
        Err(OutOfSteps) => SearchResult::Undecided,
    }
}

struct Search<'m> {
    model: &'m Model,
    limit: u64,
    attempt: Attempt<'m>,
}

impl Search<'_> {
    fn place_remaining(&mut self) -> Result<bool, OutOfSteps> {
        // The unit with the fewest eligible nodes is placed next, so that an impossible case is detected early.
        let mut next: Option<(usize, Vec<u32>)> = None;
        for index in 0..self.attempt.units.len() {
            if self.attempt.nodes[index].is_some() {
                continue;
            }
            let nodes = fitting_nodes(&self.attempt.trial, &self.attempt.units[index]);
            if self.attempt.trial.steps() > self.limit {
                return Err(OutOfSteps);
            }
            if next.as_ref().is_none_or(|(_, fewest)| nodes.len() < fewest.len()) {
                next = Some((index, nodes));
            }
        }
        let Some((at, nodes)) = next else { return Ok(true) };
        let mut tried_properties = BTreeSet::new();
        for node in nodes {
            if !tried_properties.insert(self.properties_of(node)) {
                continue;
            }
            self.attempt.trial.place(&self.attempt.units[at], node);
            self.attempt.nodes[at] = Some(node);
            if self.place_remaining()? {
                return Ok(true);
            }
            self.attempt.nodes[at] = None;
            self.attempt.trial.unplace(&self.attempt.units[at], node);
        }
        Ok(false)
    }

    /// Returns all properties of a node that are relevant for the units to be placed. Of several nodes with equal
    /// properties, only one is tried.
    fn properties_of(&mut self, node: u32) -> (Vec<Option<i128>>, Vec<bool>, Option<u32>) {
        let trial = &self.attempt.trial;
        let free = (0..3).map(|kind| trial.free(node, kind)).collect();
        let mut flags = Vec::new();
        let mut own_node = None;
        let unplaced = self.attempt.units.iter().zip(&self.attempt.nodes).filter(|(_, node)| node.is_none());
        for (unit, _) in unplaced {
            flags.push(unit.candidates.contains(node as usize));
            for member in &unit.members {
                let service = self.model.service(*member);
                flags.extend(
                    service.anti_affinity_sets.iter().map(|set| trial.services_of_set(node, *set) > 0),
                );
                if service.current_node == Some(node) {
                    own_node = Some(node);
                }
            }
        }
        self.attempt.trial.add_steps(flags.len() as u64 / 8);
        (free, flags, own_node)
    }
}

/// Searches for a placement in which services of lower priority may be preempted; the preempted services then also need
/// a node.
pub(super) fn search_with_preemption<'m>(
    model: &'m Model,
    trial: &PlacementTrial<'m>,
    units: &[PlacementUnit],
    failed: &[u32],
    steps: u64,
) -> SearchResult<'m> {
    let mut search = PreemptionSearch {
        model,
        failed,
        limit: trial.steps() + steps,
        trial: trial.clone(),
        placed: Vec::new(),
        highest: BTreeMap::new(),
        preemptible: BTreeMap::new(),
    };
    match search.place_remaining(units.iter().cloned().map(Rc::new).collect()) {
        Ok(true) => {
            let placed = search.placed.into_iter();
            let (units, nodes) = placed.map(|(unit, node)| (PlacementUnit::clone(&unit), Some(node))).unzip();
            SearchResult::Placement(Attempt { trial: search.trial, units, nodes })
        }
        Ok(false) => SearchResult::Nothing,
        Err(OutOfSteps) => SearchResult::Undecided,
    }
}

struct PreemptionSearch<'m, 'f> {
    model: &'m Model,
    failed: &'f [u32],
    limit: u64,
    trial: PlacementTrial<'m>,
    placed: Vec<(Rc<PlacementUnit>, u32)>,
    /// Priority of the unit that was placed first on a node. This priority is the highest on the node, because units
    /// are placed by descending priority.
    highest: BTreeMap<u32, i32>,
    /// The units that may be preempted on each node, regardless of their priority and of earlier preemptions.
    preemptible: BTreeMap<u32, Vec<Rc<PlacementUnit>>>,
}

impl PreemptionSearch<'_, '_> {
    fn place_remaining(&mut self, mut pending: Vec<Rc<PlacementUnit>>) -> Result<bool, OutOfSteps> {
        let Some(unit) = remove_most_important(&mut pending) else { return Ok(true) };
        for node in nodes_of(&unit) {
            let min_priority = self.highest.get(&node).copied().unwrap_or(unit.lowest_priority);
            let may_leave = self.preemptible_units(node, min_priority);
            if self.try_preemptions(&unit, node, &may_leave, &mut pending)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the units on a node that may be preempted now, see [`PlacementUnit::preemptible_units`].
    fn preemptible_units(&mut self, node: u32, min_priority: i32) -> Vec<Rc<PlacementUnit>> {
        let trial = &self.trial;
        let node_units = self.preemptible.entry(node).or_insert_with(|| {
            let units = PlacementUnit::preemptible_units(
                self.model,
                &PlacementTrial::new(self.model),
                node,
                i32::MAX,
                self.failed,
            );
            units.into_iter().map(Rc::new).collect()
        });
        let may_leave = |unit: &&Rc<PlacementUnit>| {
            unit.highest_priority < min_priority
                && !unit.members.iter().any(|member| trial.is_removed(*member))
        };
        node_units.iter().filter(may_leave).cloned().collect()
    }

    /// Tries every set of the units that may leave, the empty set first.
    fn try_preemptions(
        &mut self,
        unit: &Rc<PlacementUnit>,
        node: u32,
        may_leave: &[Rc<PlacementUnit>],
        pending: &mut Vec<Rc<PlacementUnit>>,
    ) -> Result<bool, OutOfSteps> {
        let fits = self.trial.fits(unit, node);
        if fits && self.place_and_continue(unit, node, pending)? {
            return Ok(true);
        }
        if self.trial.steps() > self.limit {
            return Err(OutOfSteps);
        }
        if !fits && !self.try_fit_without(unit, node, may_leave) {
            return Ok(false);
        }
        for (index, other) in may_leave.iter().enumerate() {
            self.remove(other);
            pending.push(Rc::clone(other));
            if self.try_preemptions(unit, node, &may_leave[index + 1..], pending)? {
                return Ok(true);
            }
            pending.pop();
            self.undo_remove(other);
        }
        Ok(false)
    }

    /// Checks whether a unit fits on a node after all these units have left it, and restores them. If the unit does not
    /// fit, no part of them suffices.
    fn try_fit_without(
        &mut self,
        unit: &PlacementUnit,
        node: u32,
        leaving_units: &[Rc<PlacementUnit>],
    ) -> bool {
        for other in leaving_units {
            self.remove(other);
        }
        let fits = self.trial.fits(unit, node);
        for other in leaving_units {
            self.undo_remove(other);
        }
        fits
    }

    fn remove(&mut self, unit: &PlacementUnit) {
        for member in &unit.members {
            self.trial.remove(*member);
        }
    }

    fn undo_remove(&mut self, unit: &PlacementUnit) {
        for member in &unit.members {
            self.trial.undo_remove(*member);
        }
    }

    fn place_and_continue(
        &mut self,
        unit: &Rc<PlacementUnit>,
        node: u32,
        pending: &[Rc<PlacementUnit>],
    ) -> Result<bool, OutOfSteps> {
        let is_first = !self.highest.contains_key(&node);
        self.highest.entry(node).or_insert(unit.lowest_priority);
        self.trial.place(unit, node);
        self.placed.push((Rc::clone(unit), node));
        if self.place_remaining(pending.to_vec())? {
            return Ok(true);
        }
        self.placed.pop();
        self.trial.unplace(unit, node);
        if is_first {
            self.highest.remove(&node);
        }
        Ok(false)
    }
}
