//! How nodes that may take a service are ordered: the derived order of [`Score`] *is* the policy.

use crate::asked::{Asked, Candidate, Member, priorities_of};
use crate::topsis;
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::node::AllocationPolicy;
use ha_api_types::placement::NodePriorities;
use std::cmp::Reverse;

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
    class_in(priorities_of(view, name, service), node_name)
}

/// The class of a node among these; without any, all are alike.
pub(crate) fn class_in(nodes: Option<&NodePriorities>, node_name: &str) -> Class {
    match nodes {
        None => Class::Member(0),
        Some(nodes) => nodes.0.get(node_name).map_or(Class::Others, |priority| Class::Member(*priority)),
    }
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
pub(crate) fn missed(asked: &Asked<'_>, node_name: &str) -> u32 {
    asked.members.iter().map(|member| missed_by_one(member, node_name)).sum()
}

fn missed_by_one(member: &Member<'_>, node_name: &str) -> u32 {
    let apart = member.apart.iter().filter(|apart| !apart.rule.strict);
    let apart: usize = apart.map(|apart| apart.on.get(node_name).map_or(0, Vec::len)).sum();
    let together = member.together.iter().filter(|beside| !beside.rule.strict);
    let away = |(_, facts): &&(&str, &ServiceFacts)| !facts.uses.contains(node_name);
    let together: usize = together.map(|beside| beside.running.iter().filter(away).count()).sum();
    u32::try_from(apart + together).unwrap_or(u32::MAX)
}

/// The load of each candidate by the scheduler's mode, lower is better. With `reservation.enabled` the services on it, divided
/// by `scaleDown`, are added in the unit of the mode.
pub(crate) fn loads(asked: &Asked<'_>, candidates: &[Candidate<'_>]) -> Vec<u64> {
    let count = |candidate: &Candidate<'_>| u64::try_from(candidate.others.count()).unwrap_or(u64::MAX);
    let (mut loads, one) = match asked.view.settings.mode {
        SchedulerMode::Basic => (candidates.iter().map(count).collect(), 1),
        SchedulerMode::Static | SchedulerMode::Dynamic => (topsis::loads(asked, candidates), 1_000_000),
    };
    if asked.view.reservation.enabled {
        let divisor = u64::from(asked.view.reservation.scale_down.max(1));
        for (load, candidate) in loads.iter_mut().zip(candidates) {
            *load += count(candidate) * one / divisor;
        }
    }
    loads
}
