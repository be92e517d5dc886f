//! Which nodes may take a service, apart from room and neighbours: worked out once for all services that are alike.

use super::bits::Bits;
use crate::score::{NodeGroupRank, node_group_rank};
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::reason::Reason;
use std::collections::BTreeMap;

/// What services that are alike have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Likeness {
    driver: Option<String>,
    /// The node-affinity rule, else the group.
    rule: Option<String>,
    group: Option<String>,
    pool: Option<String>,
    exclusive: bool,
}

/// The nodes of a class.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// A service may come here.
    pub(super) coming: Bits,
    /// Nothing drives a service away that is here.
    pub(super) staying: Bits,
}

impl Likeness {
    pub(super) fn of(view: &View, name: &str, service: &ServiceFacts) -> Likeness {
        let rule = view.rules.node_rule(name).map(|rule| rule.name.clone());
        let group = if rule.is_some() { None } else { service.group.clone() };
        Likeness {
            driver: service.driver.clone(),
            rule,
            group,
            pool: service.storage_pool.clone(),
            exclusive: service.exclusive,
        }
    }
}

/// The nodes of everyone who is like this service.
pub(super) fn class(view: &View, name: &str, service: &ServiceFacts) -> Class {
    let nodes: Vec<(&String, &NodeFacts)> = view.nodes.iter().collect();
    let refused = |at: usize, only_driving: bool| {
        let (node_name, node) = nodes[at];
        against(view, name, service, node_name, node)
            .is_some_and(|reason| !only_driving || crate::filter::drives_from(node, reason))
    };
    // What drives a service away is asked for first, so the first reason tells.
    Class {
        coming: Bits::of(nodes.len(), |at| !refused(at, false)),
        staying: Bits::of(nodes.len(), |at| !refused(at, true)),
    }
}

/// The first reason against a node that depends on nobody else; what drives services away comes first.
pub(crate) fn against(
    view: &View,
    name: &str,
    service: &ServiceFacts,
    node_name: &str,
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
    let reaches = service.storage_pool.as_ref().is_none_or(|pool| node.storage_pools.contains(pool));
    (!reaches).then_some(Reason::StorageUnreachable)
}

/// The nodes that services of one node group may go to.
pub(super) fn reach(view: &View, current: Option<&NodeFacts>) -> Bits {
    let nodes: Vec<&NodeFacts> = view.nodes.values().collect();
    Bits::of(nodes.len(), |at| group_against(view, current, nodes[at]).is_none())
}

/// Why the node group of a node speaks against a service that comes from another node.
pub(super) fn group_against(view: &View, current: Option<&NodeFacts>, node: &NodeFacts) -> Option<Reason> {
    if node_group_rank(view, current, node) == NodeGroupRank::Unallocable {
        return Some(Reason::NodeGroupUnallocable);
    }
    let leaves = current.is_some_and(|current| current.node_group != node.node_group);
    (leaves && !view.settings.inter_group_moves).then_some(Reason::OtherNodeGroup)
}

/// Classes by number, and the number of each likeness.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    numbers: BTreeMap<Likeness, usize>,
    known: Vec<Class>,
    /// By the node group of where a service is.
    reaches: BTreeMap<Option<String>, Bits>,
}

impl Classes {
    /// The class of a service, worked out if it is the first of its kind.
    pub(super) fn number(&mut self, view: &View, name: &str, service: &ServiceFacts) -> usize {
        let likeness = Likeness::of(view, name, service);
        if let Some(number) = self.numbers.get(&likeness) {
            return *number;
        }
        self.known.push(class(view, name, service));
        self.numbers.insert(likeness, self.known.len() - 1);
        self.known.len() - 1
    }

    pub(super) fn get(&self, number: usize) -> &Class {
        &self.known[number]
    }

    /// Works out where services of each node group may go.
    pub(super) fn look_at_groups(&mut self, view: &View) {
        self.reaches =
            view.nodes.values().map(|node| (node.node_group.clone(), reach(view, Some(node)))).collect();
    }

    /// Where services of this node may go, as far as node groups have a say.
    pub(super) fn reach(&self, current: &NodeFacts) -> Option<&Bits> {
        self.reaches.get(&current.node_group)
    }
}
