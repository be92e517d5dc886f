//! Services that are placed as one: a service and those that strict Positive rules keep with it.

use crate::view::{ServiceFacts, View};
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::quantity::{Amounts, Quantity};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A service that a place is looked for, and the partners that go there along with it.
///
/// A partner takes part if it runs and can be moved now, or is wanted and does not run. One that runs but cannot be moved
/// now (it is being started, moved, fenced, or frozen, or pauses since its last move failed) decides where the others go, and
/// is no member.
#[derive(Clone, Debug)]
pub struct Unit<'a> {
    /// The service itself first, then its partners by name.
    pub members: Vec<(&'a str, &'a ServiceFacts)>,
    names: BTreeSet<&'a str>,
}

impl<'a> Unit<'a> {
    /// The whole unit of a service.
    pub fn of(view: &'a View, name: &'a str, service: &'a ServiceFacts) -> Unit<'a> {
        let mut members = vec![(name, service)];
        for other in view.rules.companions(name) {
            if let Some((other, facts)) = view.services.get_key_value(&other)
                && ((facts.movable && !facts.paused) || (facts.wanted && facts.uses.is_empty()))
            {
                members.push((other.as_str(), facts));
            }
        }
        Unit::new(members)
    }

    /// A service without its partners.
    pub fn alone(name: &'a str, service: &'a ServiceFacts) -> Unit<'a> {
        Unit::new(vec![(name, service)])
    }

    /// Exactly these services, the one that a place is looked for first.
    pub fn new(members: Vec<(&'a str, &'a ServiceFacts)>) -> Unit<'a> {
        let names = members.iter().map(|(name, _)| *name).collect();
        Unit { members, names }
    }

    /// A smaller unit, with the service itself and the partners for which `keep` holds; `None`: it is the same.
    pub fn without(&self, keep: impl Fn(&str, &ServiceFacts) -> bool) -> Option<Unit<'a>> {
        let kept: Vec<_> = self
            .members
            .iter()
            .enumerate()
            .filter(|(at, (name, facts))| *at == 0 || keep(name, facts))
            .map(|(_, member)| *member)
            .collect();
        (kept.len() < self.members.len()).then(|| Unit::new(kept))
    }

    /// Whether a service is a member.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// What all members ask for.
    pub fn requests(&self) -> Amounts {
        sum(self.members.iter().map(|(_, facts)| facts.requests))
    }

    /// What all members count with when nodes are compared.
    pub fn load(&self, mode: SchedulerMode) -> Amounts {
        sum(self.members.iter().map(|(_, facts)| facts.load(mode)))
    }

    /// The node where it is: where most of its running members are; if none runs, where the service itself was.
    pub fn node(&self) -> Option<&'a str> {
        let running = self.members.iter().filter(|(_, facts)| !facts.uses.is_empty());
        most_named(running.filter_map(|(_, facts)| facts.node.as_deref()))
            .or(self.members.first().and_then(|(_, facts)| facts.node.as_deref()))
    }

    /// The node that it left for maintenance, as most members remember it.
    pub fn maintenance_node(&self) -> Option<&'a str> {
        most_named(self.members.iter().filter_map(|(_, facts)| facts.maintenance_node.as_deref()))
    }

    /// Whether it goes back to a preferred node: no member may wish to stay.
    pub fn failback(&self, view: &View) -> bool {
        self.members.iter().all(|(_, facts)| {
            let group = facts.group.as_ref().and_then(|group| view.groups.get(group));
            facts.failback && !group.is_some_and(|group| group.nofailback)
        })
    }

    /// Whether a member failed to start on a node.
    pub fn failed_on(&self, node: &str) -> bool {
        self.members.iter().any(|(_, facts)| facts.failed_nodes.contains(node))
    }
}

/// Amounts added up; what none of them names stays without an amount.
pub(crate) fn sum(parts: impl Iterator<Item = Amounts>) -> Amounts {
    let add = |one: Option<Quantity>, other: Option<Quantity>| match (one, other) {
        (None, only) | (only, None) => only,
        (Some(one), Some(other)) => Some(Quantity::from_milli(one.milli().saturating_add(other.milli()))),
    };
    parts.fold(Amounts::default(), |sum, part| Amounts {
        cpu: add(sum.cpu, part.cpu),
        memory: add(sum.memory, part.memory),
        disk: add(sum.disk, part.disk),
    })
}

fn most_named<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(name, count)| (*count, Reverse(*name))).map(|(name, _)| name)
}

/// Services that must be with this one, run, and neither are on a node nor on their way there.
pub fn partners_elsewhere(view: &View, name: &str, node: &str) -> Vec<String> {
    view.rules
        .companions(name)
        .into_iter()
        .filter(|other| {
            view.services.get(other).and_then(ServiceFacts::heading).is_some_and(|heading| heading != node)
        })
        .collect()
}
