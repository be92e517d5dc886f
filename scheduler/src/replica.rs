//! Checks whether a node is eligible as the secondary of a replicated service, and reports every blocking reason with
//! its suggested action.

use crate::filter::{limits, refusals};
use crate::unit::PlacementUnit;
use crate::view::{NodeFacts, Refusal, ServiceFacts, View};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::quantity::Quantity;
use ha_api_types::reason::Reason;

/// Returns every reason that blocks a node as the secondary.
///
/// Other services on the node do not matter, because no service is started. The disk of the node must hold one more
/// copy in addition to the existing copies, even if their services do not run.
pub fn secondary_refusals(
    view: &View,
    name: &ResourceName,
    service: &ServiceFacts,
    node_name: &NodeName,
    node: &NodeFacts,
) -> Vec<Refusal> {
    let anywhere = ServiceFacts { storage_nodes: None, ..service.clone() };
    let matters = |refusal: &Refusal| {
        ![
            Reason::NegativePartner,
            Reason::PositivePartner,
            Reason::ExclusionTag,
            Reason::NotEnoughCpu,
            Reason::NotEnoughMemory,
            Reason::NotEnoughDisk,
        ]
        .contains(&refusal.reason)
    };
    let unit = PlacementUnit::of_single_service(name, &anywhere);
    let mut refusals: Vec<Refusal> =
        refusals(view, &unit, node_name, node).into_iter().filter(matters).collect();
    refusals.extend(disk_refusal(view, name, service, node_name, node));
    refusals
}

fn disk_refusal(
    view: &View,
    name: &ResourceName,
    service: &ServiceFacts,
    node_name: &NodeName,
    node: &NodeFacts,
) -> Option<Refusal> {
    let [.., limit] = limits(&view.settings, node);
    let (requested, limit, capacity) = (service.requests.disk?, limit?, node.capacity.disk?);
    let has_copy = |facts: &ServiceFacts| {
        let stored = facts.storage_nodes.as_ref().is_some_and(|nodes| nodes.contains(node_name));
        stored || facts.used_nodes.contains(node_name)
    };
    let other_copies = view.services.iter().filter(|(other, facts)| *other != name && has_copy(facts));
    let used_disk: i128 =
        other_copies.filter_map(|(_, facts)| facts.requests.disk).map(Quantity::milli).sum();
    let free = (limit - used_disk).max(0);
    (requested.milli() > free).then(|| Refusal {
        reason: Reason::NotEnoughDisk,
        message: format!(
            "not enough disk: {requested} requested, {} of {capacity} free",
            Quantity::from_milli(free)
        ),
        remedy: format!("free disk on {node_name}, or lower the request"),
        evicts_running: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::quantity::Amounts;
    use std::collections::BTreeSet;

    fn disk(gibibytes: i128) -> Amounts {
        Amounts { disk: Some(Quantity::from_milli((gibibytes * 1000) << 30)), ..Amounts::default() }
    }

    fn service(node: &str, secondary: &str, gibibytes: i128) -> ServiceFacts {
        let node = NodeName::from(node);
        ServiceFacts {
            used_nodes: BTreeSet::from([node.clone()]),
            driver: Some("exec".to_owned()),
            storage_pool: Some("disks".to_owned()),
            storage_nodes: Some(BTreeSet::from([node.clone(), secondary.into()])),
            requests: disk(gibibytes),
            node: Some(node),
            ..ServiceFacts::default()
        }
    }

    /// Checks the reasons that block node3 as the secondary of `web`. `web` has 4 GiB on node1 and its secondary on node2.
    /// `db` has `db` GiB on node4 and its secondary on node3.
    fn check(db: i128, change: impl FnOnce(&mut NodeFacts), expected: &[Reason]) {
        let mut node = NodeFacts {
            storage_pools: BTreeSet::from(["disks".to_owned()]),
            capacity: disk(10),
            ..NodeFacts::default()
        };
        change(&mut node);
        let web = service("node1", "node2", 4);
        let view = View {
            nodes: [("node3".into(), node.clone())].into(),
            services: [("web".into(), web.clone()), ("db".into(), service("node4", "node3", db))]
                .into_iter()
                .collect(),
            ..View::default()
        };
        let refusals = secondary_refusals(&view, &"web".into(), &web, &"node3".into(), &node);
        let reasons: Vec<Reason> = refusals.iter().map(|refusal| refusal.reason).collect();
        assert_eq!(reasons, expected, "{refusals:?}");
    }

    #[test]
    fn secondary_needs_online_node_with_pool_capacity() {
        check(6, |_| {}, &[]);
        check(7, |_| {}, &[Reason::NotEnoughDisk]);
        check(7, |node| node.capacity = Amounts::default(), &[]);
        check(1, |node| node.online = Err(Reason::Fenced), &[Reason::NodeNotOnline]);
        check(1, |node| node.maintenance = true, &[Reason::NodeInMaintenance]);
        check(1, |node| node.schedulable = false, &[Reason::NodeUnschedulable]);
        check(1, |node| node.storage_pools.clear(), &[Reason::StorageUnreachable]);
    }
}
