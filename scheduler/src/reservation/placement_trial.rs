//! The cluster as it would be if some services were removed and others were placed.

use super::model::{Model, Sums};
use super::unit::PlacementUnit;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub(super) struct PlacementTrial<'m> {
    model: &'m Model,
    used: Vec<Sums>,
    /// Services that were removed from their nodes in the model.
    removed_services: BTreeSet<u32>,
    /// Changes of the number of services of an anti-affinity set, by node and set.
    count_changes: BTreeMap<(u32, u32), i64>,
    /// Number of services of an anti-affinity set that were placed on a node other than their own, by node and set.
    arrivals: BTreeMap<(u32, u32), i64>,
    /// Number of examined candidates.
    steps: Cell<u64>,
}

impl<'m> PlacementTrial<'m> {
    pub(super) fn new(model: &'m Model) -> PlacementTrial<'m> {
        let used = model.nodes.iter().map(|node| node.used).collect();
        PlacementTrial {
            model,
            used,
            removed_services: BTreeSet::new(),
            count_changes: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            steps: Cell::new(0),
        }
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Counts further examined candidates. A question such as [`PlacementTrial::fits`] counts its candidate too, so the
    /// count is the only part of a trial that changes through a shared reference.
    pub(super) fn add_steps(&self, steps: u64) {
        self.steps.set(self.steps.get() + steps);
    }

    pub(super) fn is_removed(&self, service: u32) -> bool {
        self.removed_services.contains(&service)
    }

    pub(super) fn used(&self, node: u32) -> &Sums {
        &self.used[node as usize]
    }

    /// Removes a service from its nodes in the model.
    pub(super) fn remove(&mut self, service: u32) {
        if self.removed_services.insert(service) {
            self.add_to_own_nodes(service, -1);
        }
    }

    /// Restores a removed service on its nodes.
    pub(super) fn undo_remove(&mut self, service: u32) {
        if self.removed_services.remove(&service) {
            self.add_to_own_nodes(service, 1);
        }
    }

    fn add_to_own_nodes(&mut self, service: u32, sign: i64) {
        let model = self.model;
        for node in &model.service(service).used_nodes {
            self.add_to_sums(service, *node, sign);
        }
    }

    fn add_to_sums(&mut self, service: u32, node: u32, sign: i64) {
        let model_service = self.model.service(service);
        for (used, requests) in self.used[node as usize].iter_mut().zip(model_service.requests) {
            *used += i128::from(sign) * requests.unwrap_or(0);
        }
        for set in &model_service.anti_affinity_sets {
            *self.count_changes.entry((node, *set)).or_default() += sign;
        }
    }

    pub(super) fn place(&mut self, unit: &PlacementUnit, node: u32) {
        self.add_unit(unit, node, 1);
    }

    pub(super) fn unplace(&mut self, unit: &PlacementUnit, node: u32) {
        self.add_unit(unit, node, -1);
    }

    fn add_unit(&mut self, unit: &PlacementUnit, node: u32, sign: i64) {
        for member in &unit.members {
            self.add_to_sums(*member, node, sign);
            let service = self.model.service(*member);
            if service.current_node != Some(node) {
                for set in &service.anti_affinity_sets {
                    *self.arrivals.entry((node, *set)).or_default() += sign;
                }
            }
        }
    }

    /// Returns the number of services of an anti-affinity set that use a node.
    pub(super) fn services_of_set(&self, node: u32, set: u32) -> i64 {
        let in_model = self.model.node(node).services_by_set.get(&set).copied().unwrap_or(0);
        in_model + self.count_changes.get(&(node, set)).copied().unwrap_or(0)
    }

    /// Returns the free amount of one kind; `None` if it is unlimited.
    pub(super) fn free(&self, node: u32, kind: usize) -> Option<i128> {
        Some(self.model.node(node).limits[kind]? - self.used[node as usize][kind])
    }

    /// Returns the anti-affinity set that keeps a unit away from a node, if any.
    pub(super) fn conflicting_set(&self, unit: &PlacementUnit, node: u32) -> Option<u32> {
        unit.members.iter().find_map(|member| {
            let service = self.model.service(*member);
            // An exclusion tag prevents new placements, but does not make a service leave. A service that stays
            // therefore conflicts only with services that move to the node, regardless of the order of placement.
            let is_current_node = service.current_node == Some(node);
            service.anti_affinity_sets.iter().copied().find(|set| {
                let conflicting_count = if is_current_node && *set >= self.model.first_tag {
                    self.arrivals.get(&(node, *set)).copied().unwrap_or(0)
                } else {
                    self.services_of_set(node, *set)
                };
                conflicting_count > 0
            })
        })
    }

    /// Returns `true` if a node has capacity for a unit.
    pub(super) fn has_capacity(&self, unit: &PlacementUnit, node: u32) -> bool {
        let limits = &self.model.node(node).limits;
        let used = &self.used[node as usize];
        (0..3).all(|kind| match (unit.requests[kind], limits[kind]) {
            (Some(requests), Some(limit)) => used[kind] + requests <= limit,
            (None, _) | (_, None) => true,
        })
    }

    /// Returns `true` if a unit may be placed on a node in the current state.
    pub(super) fn fits(&self, unit: &PlacementUnit, node: u32) -> bool {
        self.add_steps(1);
        unit.candidates.contains(node as usize)
            && self.has_capacity(unit, node)
            && self.conflicting_set(unit, node).is_none()
    }
}
