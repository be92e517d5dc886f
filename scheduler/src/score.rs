//! The order of eligible nodes: the derived order of [`Score`] *is* the policy.

use crate::placement_query::{Candidate, Member, PlacementQuery, priorities_of};
use crate::topsis;
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::node::AllocationPolicy;
use ha_api_types::placement::NodePriorities;
use std::cmp::Reverse;

/// The rank of an eligible node, compared field by field; lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// `true` if the service failed to start on the node.
    pub failed_before: bool,
    /// Priority tier of the node. Nodes outside the group or rule come after all its members.
    pub priority_tier: Reverse<PriorityTier>,
    /// Rank of the node among the priority tiers of the partners that are scheduled with the service; 0 is the best.
    pub partners_tier: u32,
    /// Rank of the node group: the group of the service, then preferred groups, then groups of last resort.
    pub node_group: NodeGroupRank,
    /// Number of preferred rules that the placement would violate.
    pub violated_preferences: u32,
    /// Load by `scheduler.mode`: the number of services in Basic, the TOPSIS distance in millionths in Static and Dynamic.
    /// With `reservation.enabled` the weight of the services on the node is added.
    pub load: u64,
}

/// The rank of a node by the priorities of a group or rule; `Unlisted` is the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PriorityTier {
    /// The node is not listed in the group or rule.
    Unlisted,
    /// The node is listed with this priority.
    Listed(i64),
}

/// Relation of a node group to the node group of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeGroupRank {
    /// The same node group, or no node groups are used.
    Own,
    /// Another node group with policy Preferred, or none.
    Preferred,
    /// Another node group, with policy LastResort.
    LastResort,
    /// Another node group, with policy Unallocable, which accepts no new services.
    Unallocable,
}

/// Returns the priority tier of a node for a service: by its node-affinity rule, or else by its group.
pub fn priority_tier_of(
    view: &View,
    name: &ResourceName,
    service: &ServiceFacts,
    node_name: &NodeName,
) -> PriorityTier {
    priority_tier_in(priorities_of(view, name, service), node_name)
}

/// Returns the priority tier of a node in this list. Without a list, all nodes are in the same tier.
pub(crate) fn priority_tier_in(nodes: Option<&NodePriorities>, node_name: &NodeName) -> PriorityTier {
    match nodes {
        None => PriorityTier::Listed(0),
        Some(nodes) => {
            nodes.0.get(node_name).map_or(PriorityTier::Unlisted, |priority| PriorityTier::Listed(*priority))
        }
    }
}

/// Returns the rank of a node's group for a service that is on the node `current`.
pub fn node_group_rank(view: &View, current: Option<&NodeFacts>, node: &NodeFacts) -> NodeGroupRank {
    let current_group = current.and_then(|node| node.node_group.as_ref());
    if current_group.is_some() && current_group == node.node_group.as_ref() {
        return NodeGroupRank::Own;
    }
    match node.node_group.as_ref().and_then(|group| view.node_groups.get(group)) {
        None if current_group.is_none() => NodeGroupRank::Own,
        None | Some(AllocationPolicy::Preferred) => NodeGroupRank::Preferred,
        Some(AllocationPolicy::LastResort) => NodeGroupRank::LastResort,
        Some(AllocationPolicy::Unallocable) => NodeGroupRank::Unallocable,
    }
}

/// Returns the number of preferred resource rules that a unit on this node would violate. Each anti-affinity partner on the
/// node and each affinity partner on another node counts.
pub(crate) fn count_violated_preferences(query: &PlacementQuery<'_>, node_name: &NodeName) -> u32 {
    query.members.iter().map(|member| count_violated_by_member(member, node_name)).sum()
}

fn count_violated_by_member(member: &Member<'_>, node_name: &NodeName) -> u32 {
    let anti_affinity = member.anti_affinity.iter().filter(|partners| !partners.rule.strict);
    let anti_affinity: usize =
        anti_affinity.map(|partners| partners.by_node.get(node_name).map_or(0, Vec::len)).sum();
    let affinity = member.affinity.iter().filter(|partners| !partners.rule.strict);
    let is_elsewhere = |(_, facts): &&(&ResourceName, &ServiceFacts)| !facts.used_nodes.contains(node_name);
    let affinity: usize = affinity.map(|partners| partners.running.iter().filter(is_elsewhere).count()).sum();
    u32::try_from(anti_affinity + affinity).unwrap_or(u32::MAX)
}

/// Computes the load of each candidate by the scheduler's mode; lower is better. With `reservation.enabled`, the number
/// of services on the node, divided by `scaleDown`, is added in the unit of the mode. In Basic, the load is the number
/// of services itself, so the order of the candidates does not change.
pub(crate) fn loads(query: &PlacementQuery<'_>, candidates: &[Candidate<'_>]) -> Vec<u64> {
    let count = |candidate: &Candidate<'_>| u64::try_from(candidate.outside_use.count()).unwrap_or(u64::MAX);
    let (mut loads, load_unit) = match query.view.settings.mode {
        SchedulerMode::Basic => (candidates.iter().map(count).collect(), 1),
        SchedulerMode::Static | SchedulerMode::Dynamic => (topsis::loads(query, candidates), 1_000_000),
    };
    if query.view.reservation.enabled {
        let divisor = u64::from(query.view.reservation.scale_down.max(1));
        for (load, candidate) in loads.iter_mut().zip(candidates) {
            *load += count(candidate) * load_unit / divisor;
        }
    }
    loads
}
