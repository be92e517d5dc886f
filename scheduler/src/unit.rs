//! Services that are scheduled as one unit: a service and its partners by strict Positive rules.

use crate::view::{ServiceFacts, View};
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::quantity::{Amounts, Quantity};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A service to be scheduled, and the partners that are scheduled with it.
///
/// A partner is a member if it runs and can be moved now, or if it is desired and does not run. A partner that runs but
/// cannot be moved now is not a member: the others must use its node. Such a partner is being started, moved or fenced,
/// is unmonitored, or pauses after a failed move.
#[derive(Clone, Debug)]
pub struct PlacementUnit<'a> {
    /// The service itself first, then its partners by name.
    pub members: Vec<(&'a ResourceName, &'a ServiceFacts)>,
    names: BTreeSet<&'a ResourceName>,
}

impl<'a> PlacementUnit<'a> {
    /// Returns the unit of a service with all its partners.
    pub fn of(view: &'a View, name: &'a ResourceName, service: &'a ServiceFacts) -> PlacementUnit<'a> {
        let mut members = vec![(name, service)];
        for other in view.rules.strict_affinity_partners(name) {
            if let Some((other, facts)) = view.services.get_key_value(&other)
                && ((facts.movable && !facts.paused) || (facts.is_desired && facts.used_nodes.is_empty()))
            {
                members.push((other, facts));
            }
        }
        PlacementUnit::new(members)
    }

    /// Returns a unit of one service without its partners.
    pub fn of_single_service(name: &'a ResourceName, service: &'a ServiceFacts) -> PlacementUnit<'a> {
        PlacementUnit::new(vec![(name, service)])
    }

    /// Returns a unit of exactly these services; the first is the service to be scheduled.
    pub fn new(members: Vec<(&'a ResourceName, &'a ServiceFacts)>) -> PlacementUnit<'a> {
        let names = members.iter().map(|(name, _)| *name).collect();
        PlacementUnit { members, names }
    }

    /// Returns a smaller unit of the service itself and the partners for which `keep` returns `true`. `None` if no partner
    /// is dropped.
    pub fn retaining(
        &self,
        keep: impl Fn(&ResourceName, &ServiceFacts) -> bool,
    ) -> Option<PlacementUnit<'a>> {
        let retained: Vec<_> = self
            .members
            .iter()
            .enumerate()
            .filter(|(index, (name, facts))| *index == 0 || keep(name, facts))
            .map(|(_, member)| *member)
            .collect();
        (retained.len() < self.members.len()).then(|| PlacementUnit::new(retained))
    }

    /// Returns `true` if a service is a member.
    pub fn contains(&self, name: &ResourceName) -> bool {
        self.names.contains(name)
    }

    /// Returns the sum of the requests of all members.
    pub fn requests(&self) -> Amounts {
        sum(self.members.iter().map(|(_, facts)| facts.requests))
    }

    /// Returns the sum of the load of all members for the comparison of nodes.
    pub fn load(&self, mode: SchedulerMode) -> Amounts {
        sum(self.members.iter().map(|(_, facts)| facts.load(mode)))
    }

    /// Returns the node of the unit: the node with the most running members. If no member runs, returns the last node
    /// of the service itself.
    pub fn node(&self) -> Option<&'a NodeName> {
        let running = self.members.iter().filter(|(_, facts)| !facts.used_nodes.is_empty());
        most_frequent_node(running.filter_map(|(_, facts)| facts.node.as_ref()))
            .or(self.members.first().and_then(|(_, facts)| facts.node.as_ref()))
    }

    /// Returns the node that the unit left for maintenance, by the majority of its members.
    pub fn maintenance_node(&self) -> Option<&'a NodeName> {
        most_frequent_node(self.members.iter().filter_map(|(_, facts)| facts.maintenance_node.as_ref()))
    }

    /// Returns `true` if the unit returns to a preferred node, that is, if failback applies to all members.
    pub fn has_failback(&self, view: &View) -> bool {
        self.members.iter().all(|(_, facts)| {
            let group = facts.group.as_ref().and_then(|group| view.groups.get(group));
            facts.failback && !group.is_some_and(|group| group.nofailback)
        })
    }

    /// Returns `true` if a member failed to start on a node.
    pub fn has_failed_on(&self, node: &NodeName) -> bool {
        self.members.iter().any(|(_, facts)| facts.failed_nodes.contains(node))
    }
}

/// Adds up amounts; an amount that no part has stays `None`.
pub(crate) fn sum(parts: impl Iterator<Item = Amounts>) -> Amounts {
    let add = |left: Option<Quantity>, right: Option<Quantity>| match (left, right) {
        (None, only) | (only, None) => only,
        (Some(left), Some(right)) => Some(Quantity::from_milli(left.milli().saturating_add(right.milli()))),
    };
    parts.fold(Amounts::default(), |sum, part| Amounts {
        cpu: add(sum.cpu, part.cpu),
        memory: add(sum.memory, part.memory),
        disk: add(sum.disk, part.disk),
    })
}

fn most_frequent_node<'a>(names: impl Iterator<Item = &'a NodeName>) -> Option<&'a NodeName> {
    let mut counts: BTreeMap<&NodeName, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(name, count)| (*count, Reverse(*name))).map(|(name, _)| name)
}

/// Returns the running services that must be on the same node as `name`, but are neither on `node` nor moving to it.
pub fn partners_elsewhere(view: &View, name: &ResourceName, node: &NodeName) -> Vec<ResourceName> {
    view.rules
        .strict_affinity_partners(name)
        .into_iter()
        .filter(|other| {
            view.services
                .get(other)
                .and_then(ServiceFacts::current_or_target_node)
                .is_some_and(|target_node| target_node != node)
        })
        .collect()
}
