//! The nodes that a service may use, without regard to free capacity and other services. They are computed once for all
//! similar services.

use super::bits::Bits;
use crate::score::{NodeGroupRank, node_group_rank};
use crate::view::{NodeFacts, NodePolicyId, ServiceFacts, View};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use std::collections::{BTreeMap, BTreeSet};

/// Properties that determine the nodes of a service, without regard to free capacity and other services.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EligibilityKey {
    driver: Option<String>,
    /// The node-affinity rule; `None` if the group applies.
    rule: Option<String>,
    group: Option<String>,
    pool: Option<String>,
    exclusive: bool,
    forbidding_policies: BTreeSet<NodePolicyId>,
}

/// The eligible nodes of all services with the same properties.
#[derive(Clone, Debug)]
pub(super) struct EligibleNodes {
    /// Nodes to which a service may move.
    pub(super) move_targets: Bits,
    /// Nodes on which a running service may stay.
    pub(super) stay_nodes: Bits,
}

impl EligibilityKey {
    pub(super) fn of(view: &View, name: &ResourceName, service: &ServiceFacts) -> EligibilityKey {
        let rule = view.rules.node_rule(name).map(|rule| rule.name.clone());
        let group = if rule.is_some() { None } else { service.group.clone() };
        EligibilityKey {
            driver: service.driver.clone(),
            rule,
            group,
            pool: service.storage_pool.clone(),
            exclusive: service.exclusive,
            forbidding_policies: service.forbidding_policies.keys().copied().collect(),
        }
    }
}

/// Computes the nodes for all services that are similar to this service.
pub(super) fn eligible_nodes(view: &View, name: &ResourceName, service: &ServiceFacts) -> EligibleNodes {
    let nodes: Vec<(&NodeName, &NodeFacts)> = view.nodes.iter().collect();
    let is_refused = |index: usize, only_evicting: bool| {
        let (node_name, node) = nodes[index];
        blocking_reason(view, name, service, node_name, node)
            .is_some_and(|reason| !only_evicting || crate::filter::evicts_from(node, reason))
    };
    // `blocking_reason` returns reasons that make a service leave first, so the first reason decides both.
    EligibleNodes {
        move_targets: Bits::of(nodes.len(), |index| !is_refused(index, false)),
        stay_nodes: Bits::of(nodes.len(), |index| !is_refused(index, true)),
    }
}

/// Returns the first reason that blocks a node and does not depend on other services. Reasons that make services leave come
/// first.
pub(crate) fn blocking_reason(
    view: &View,
    name: &ResourceName,
    service: &ServiceFacts,
    node_name: &NodeName,
    node: &NodeFacts,
) -> Option<Reason> {
    if node.maintenance {
        return Some(Reason::NodeInMaintenance);
    }
    if service.exclusive && node.watchdog_failed {
        return Some(Reason::WatchdogFailed);
    }
    match view.rules.node_rule(name) {
        Some(rule) if rule.strict && !rule.nodes.0.contains_key(node_name) => {
            return Some(Reason::NodeAffinity);
        }
        Some(_) => {}
        None => {
            let group = service.group.as_ref().and_then(|group| view.groups.get(group));
            if group.is_some_and(|group| group.restricted && !group.nodes.0.contains_key(node_name)) {
                return Some(Reason::NotInGroup);
            }
        }
    }
    if node.online.is_err() {
        return Some(Reason::NodeNotOnline);
    }
    if !node.schedulable {
        return Some(Reason::NodeUnschedulable);
    }
    if let (true, Err(reason)) = (service.exclusive, node.fenceable) {
        return Some(reason);
    }
    let Some(driver) = &service.driver else { return Some(Reason::BadConfiguration) };
    if !node.drivers.is_empty() && !node.drivers.contains(driver) {
        return Some(Reason::DriverMissing);
    }
    if service.policy_refusal(node).is_some() {
        return Some(Reason::NodePolicy);
    }
    let reaches_storage = service.storage_pool.as_ref().is_none_or(|pool| node.storage_pools.contains(pool));
    (!reaches_storage).then_some(Reason::StorageUnreachable)
}

/// Returns the nodes to which services of one node group may move.
pub(super) fn reachable_nodes(view: &View, current: Option<&NodeFacts>) -> Bits {
    let nodes: Vec<&NodeFacts> = view.nodes.values().collect();
    Bits::of(nodes.len(), |index| node_group_reason(view, current, nodes[index]).is_none())
}

/// Returns the reason why node groups block a node for a service that comes from another node.
pub(super) fn node_group_reason(
    view: &View,
    current: Option<&NodeFacts>,
    node: &NodeFacts,
) -> Option<Reason> {
    if node_group_rank(view, current, node) == NodeGroupRank::Unallocable {
        return Some(Reason::NodeGroupUnallocable);
    }
    let is_other_group = current.is_some_and(|current| current.node_group != node.node_group);
    (is_other_group && !view.settings.inter_group_moves).then_some(Reason::OtherNodeGroup)
}

/// Sets of eligible nodes by number, and the number for each combination of properties.
#[derive(Clone, Debug, Default)]
pub(super) struct EligibilityCache {
    numbers: BTreeMap<EligibilityKey, usize>,
    eligible_nodes: Vec<EligibleNodes>,
    /// Reachable nodes by the node group of the current node.
    reachable_by_group: BTreeMap<Option<String>, Bits>,
}

impl EligibilityCache {
    /// Returns the number of a service's eligible nodes. Computes them for the first service with these properties.
    pub(super) fn number_of_or_insert(
        &mut self,
        view: &View,
        name: &ResourceName,
        service: &ServiceFacts,
    ) -> usize {
        let key = EligibilityKey::of(view, name, service);
        if let Some(known_number) = self.numbers.get(&key) {
            return *known_number;
        }
        self.eligible_nodes.push(eligible_nodes(view, name, service));
        self.numbers.insert(key, self.eligible_nodes.len() - 1);
        self.eligible_nodes.len() - 1
    }

    pub(super) fn get(&self, number: usize) -> &EligibleNodes {
        &self.eligible_nodes[number]
    }

    /// Computes the nodes to which services of each node group may move.
    pub(super) fn update_reachable(&mut self, view: &View) {
        self.reachable_by_group = view
            .nodes
            .values()
            .map(|node| (node.node_group.clone(), reachable_nodes(view, Some(node))))
            .collect();
    }

    /// Returns the nodes to which services on this node may move, as far as node groups limit them.
    pub(super) fn reachable_nodes(&self, current: &NodeFacts) -> Option<&Bits> {
        self.reachable_by_group.get(&current.node_group)
    }
}
