//! How nodes that may take a service are ordered: the derived order of [`Score`] *is* the policy.

use crate::topsis;
use crate::unit::Unit;
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::node::AllocationPolicy;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The order of feasible nodes, best first: field after field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// Nodes where it failed to start come last.
    pub failed_before: bool,
    /// A higher priority class comes first; everybody else after all members.
    pub class: Reverse<Class>,
    /// How far the node is down the list of classes of those that it is placed together with.
    pub partners_class: u32,
    /// Its own node group, then preferred ones, then those of last resort.
    pub node_group: NodeGroupRank,
    /// Non-strict rules that would be broken.
    pub preferences_missed: u32,
    /// Load by `scheduler.mode`: services in Basic; in Static and Dynamic the TOPSIS distance, in millionths. With
    /// `reservation.enabled` the weight of the services that are there is part of it.
    pub load: u64,
}

/// A priority class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// No member of the group or rule.
    Others,
    /// A member with this priority.
    Member(i64),
}

/// How near a node group is to the service's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeGroupRank {
    /// Its own, or no groups are used.
    Own,
    /// Another, preferred.
    Preferred,
    /// Another, of last resort.
    LastResort,
    /// Another that takes nothing new.
    Unallocable,
}

/// The class of a node for a service: by its node-affinity rule, else by its group.
pub fn class_of(view: &View, name: &str, service: &ServiceFacts, node_name: &str) -> Class {
    let nodes = match view.rules.node_rule(name) {
        Some(rule) => Some(&rule.nodes),
        None => service.group.as_ref().and_then(|group| view.groups.get(group)).map(|group| &group.nodes),
    };
    match nodes {
        None => Class::Member(0),
        Some(nodes) => nodes.0.get(node_name).map_or(Class::Others, |priority| Class::Member(*priority)),
    }
}

/// Whether a group or rule says anything about where a service should run.
pub fn prefers(view: &View, name: &str, service: &ServiceFacts) -> bool {
    view.rules.node_rule(name).is_some()
        || service.group.as_ref().is_some_and(|group| view.groups.contains_key(group))
}

/// The rank of a node's group for a service that is on `current`.
pub fn node_group_rank(view: &View, current: Option<&NodeFacts>, node: &NodeFacts) -> NodeGroupRank {
    let home = current.and_then(|node| node.node_group.as_ref());
    if home.is_some() && home == node.node_group.as_ref() {
        return NodeGroupRank::Own;
    }
    match node.node_group.as_ref().and_then(|group| view.node_groups.get(group)) {
        None if home.is_none() => NodeGroupRank::Own,
        None | Some(AllocationPolicy::Preferred) => NodeGroupRank::Preferred,
        Some(AllocationPolicy::LastResort) => NodeGroupRank::LastResort,
        Some(AllocationPolicy::Unallocable) => NodeGroupRank::Unallocable,
    }
}

/// Non-strict resource rules that a unit on this node would miss: services apart that are there, and services together
/// that are elsewhere.
pub fn preferences_missed(view: &View, unit: &Unit<'_>, node_name: &str) -> u32 {
    unit.members.iter().map(|(name, _)| missed_by_one(view, unit, name, node_name)).sum()
}

fn missed_by_one(view: &View, unit: &Unit<'_>, name: &str, node_name: &str) -> u32 {
    let apart: usize = view
        .rules
        .apart_from(name)
        .filter(|partners| !partners.strict)
        .map(|partners| {
            view.users_of(node_name, name)
                .filter(|(other, _)| partners.resources.contains(*other) && !unit.contains(other))
                .count()
        })
        .sum();
    let together: usize = view
        .rules
        .together_with(name)
        .filter(|partners| !partners.strict)
        .map(|partners| {
            let away = |other: &&String| {
                !unit.contains(other)
                    && view
                        .services
                        .get(other.as_str())
                        .is_some_and(|facts| !facts.uses.is_empty() && !facts.uses.contains(node_name))
            };
            partners.resources.iter().filter(away).count()
        })
        .sum();
    u32::try_from(apart + together).unwrap_or(u32::MAX)
}

/// With `reservation.enabled`, what is added to the load of each candidate: the services on it, divided by `scaleDown`, in
/// the unit of the scheduler's mode.
pub fn reservation_weights(view: &View, unit: &Unit<'_>, candidates: &[&str]) -> BTreeMap<String, u64> {
    if !view.reservation.enabled {
        return BTreeMap::new();
    }
    let one = match view.settings.mode {
        SchedulerMode::Basic => 1,
        SchedulerMode::Static | SchedulerMode::Dynamic => 1_000_000,
    };
    let divisor = u64::from(view.reservation.scale_down.max(1));
    let services = services_on(view, unit, candidates);
    services.into_iter().map(|(node, count)| (node, count * one / divisor)).collect()
}

/// Services that use each candidate, without the unit's own.
fn services_on(view: &View, unit: &Unit<'_>, candidates: &[&str]) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = candidates.iter().map(|node| ((*node).to_owned(), 0)).collect();
    for (_, facts) in view.services.iter().filter(|(other, _)| !unit.contains(other)) {
        for node in &facts.uses {
            if let Some(count) = counts.get_mut(node) {
                *count += 1;
            }
        }
    }
    counts
}

/// The load of each candidate by the scheduler's mode, lower is better.
pub fn loads(view: &View, unit: &Unit<'_>, candidates: &[&str]) -> BTreeMap<String, u64> {
    match view.settings.mode {
        SchedulerMode::Basic => services_on(view, unit, candidates),
        SchedulerMode::Static | SchedulerMode::Dynamic => topsis::loads(view, unit, candidates),
    }
}
