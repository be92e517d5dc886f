//! Checks whether services fit on a node after some services have left it.

use crate::filter::refusals;
use crate::place::{Placement, Verdict};
use crate::services::Services;
use crate::unit::PlacementUnit;
use crate::view::{ServiceFacts, View};
use ha_api_types::id::{NodeName, ResourceName};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the best node for a service and for the services in `with`.
///
/// The chosen node of the placement comes first, then the other eligible nodes by score, ties by name. `None` if no node
/// fits all.
pub fn best_common_node(
    view: &View,
    placement: &Placement,
    name: &ResourceName,
    service: &ServiceFacts,
    companions: &BTreeSet<ResourceName>,
) -> Option<NodeName> {
    let fits_all = |node: &NodeName| {
        let none_leaving = BTreeSet::new();
        StartTrial::new(view, name, service, companions, &none_leaving, node)
            .try_fit_without(none_leaving.iter())
    };
    if let Some(node) = placement.node.as_ref().filter(|node| fits_all(node)) {
        return Some(node.clone());
    }
    let mut allowed: Vec<_> = placement
        .verdicts
        .iter()
        .filter_map(|(node, verdict)| match verdict {
            Verdict::Allowed(score) => Some((score, node)),
            Verdict::Refused(_) => None,
        })
        .collect();
    allowed.sort();
    allowed.into_iter().find(|(_, node)| fits_all(node)).map(|(_, node)| node.clone())
}

/// Returns a view without nodes and services, with the same rules and settings.
fn settings_of(view: &View) -> View {
    View {
        nodes: BTreeMap::new(),
        services: Services::default(),
        groups: view.groups.clone(),
        node_groups: view.node_groups.clone(),
        rules: view.rules.clone(),
        settings: view.settings.clone(),
        reservation: view.reservation.clone(),
    }
}

/// A view with one node, the services that use it, and, on any node, the services that must be together with the
/// starting services.
pub(crate) struct StartTrial<'a> {
    view: View,
    node: &'a NodeName,
    /// Services that will start on the node, in this order.
    starting: Vec<(ResourceName, ServiceFacts)>,
}

impl<'a> StartTrial<'a> {
    /// Builds the view in which `name` and all services in `with` start on a node without the services in `leaving`.
    pub(crate) fn new(
        view: &View,
        name: &ResourceName,
        service: &ServiceFacts,
        companions: &BTreeSet<ResourceName>,
        leaving: &BTreeSet<ResourceName>,
        node: &'a NodeName,
    ) -> StartTrial<'a> {
        let mut starting = vec![(name.clone(), service.clone())];
        let companions = companions.iter().filter_map(|name| view.services.get_key_value(name));
        starting.extend(companions.map(|(name, facts)| (name.clone(), facts.clone())));
        for (_, facts) in &mut starting {
            facts.used_nodes.clear();
        }
        let starts = |name: &ResourceName| starting.iter().any(|(starting_name, _)| starting_name == name);
        let companions: BTreeSet<ResourceName> =
            starting.iter().flat_map(|(name, _)| view.rules.strict_affinity_partners(name)).collect();
        let services = view
            .services
            .iter()
            .filter(|(name, facts)| facts.used_nodes.contains(node) || companions.contains(*name))
            .filter(|(name, _)| !leaving.contains(*name) && !starts(name))
            .map(|(name, facts)| (name.clone(), facts.clone()))
            .collect();
        let nodes = view.nodes.get_key_value(node).map(|(name, facts)| (name.clone(), facts.clone()));
        let view = View { nodes: nodes.into_iter().collect(), services, ..settings_of(view) };
        StartTrial { view, node, starting }
    }

    /// Checks whether all services that will start fit once the services in `removed_services` have left, and restores
    /// the view.
    pub(crate) fn try_fit_without<'n>(
        &mut self,
        removed_services: impl Iterator<Item = &'n ResourceName>,
    ) -> bool {
        let Some(facts) = self.view.nodes.get(self.node).cloned() else { return false };
        let mut removed_entries = Vec::new();
        for name in removed_services {
            removed_entries.extend(self.view.services.remove_entry(name));
        }
        let starting = self.starting.iter().map(|(name, facts)| (name, facts)).collect();
        let fits = refusals(&self.view, &PlacementUnit::new(starting), self.node, &facts).is_empty();
        self.view.services.extend(removed_entries);
        fits
    }

    /// Returns the priority of a service that uses the node.
    pub(crate) fn priority_of(&self, name: &ResourceName) -> Option<i32> {
        self.view.services.get(name).map(|facts| facts.priority)
    }
}
