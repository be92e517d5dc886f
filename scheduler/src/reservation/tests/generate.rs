//! Generator of small clusters with little free capacity and rules of all kinds.

use super::{Affinity, cluster, set_resource_rules};
use crate::view::{NodeFacts, NodePolicyId, ServiceFacts, View};
use ha_api_types::id::NodeName;
use ha_api_types::node::AllocationPolicy;
use ha_api_types::placement::{GroupSpec, NodePriorities};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// One service as numbers: node, memory, priority, and a number whose bits select facts.
pub(super) type DrawnService = (usize, u32, i32, u32);

fn node_name(index: usize) -> NodeName {
    format!("node{}", 1 + index).into()
}

/// Returns the service for drawn numbers, in a cluster of `nodes` nodes.
pub(super) fn service(nodes: usize, (at, memory, priority, bits): DrawnService) -> ServiceFacts {
    let node = node_name(at % nodes);
    let text = format!("s {node} {memory}Gi {priority}");
    let mut facts = cluster(&[], &[&text]).services.remove(&"s".into()).expect("a service");
    let bit = |position: u32| bits >> position & 1 == 1;
    let other = node_name((at + 1 + (bits >> 16) as usize) % nodes);
    // Rare facts depend on two or three bits.
    if bit(0) && bit(1) {
        facts.storage_nodes = Some(BTreeSet::from([node.clone(), other.clone()]));
    }
    if bit(2) && bit(3) {
        facts.movable = false;
        if bit(4) {
            facts.used_nodes.insert(other);
        }
    }
    if bit(5) && bit(6) {
        facts.group = Some("g".to_owned());
    }
    if bit(7) && bit(8) && bit(9) {
        (facts.stopped, facts.is_desired, facts.movable) = (true, false, false);
        facts.used_nodes.clear();
    }
    if bit(10) && bit(11) {
        facts.tags.insert("x:1".to_owned());
    }
    if bit(12) && bit(13) {
        facts.requests.cpu = "2".parse().ok();
    }
    if bit(14) && bit(15) && bit(16) {
        facts.is_desired = false;
    }
    if bit(20) && bit(21) {
        facts.forbidding_policies.insert(NodePolicyId(u32::from(bit(22))), "forbidden".to_owned());
    }
    facts
}

/// Generates a cluster of two to four nodes and up to six services.
pub(crate) fn view() -> impl Strategy<Value = View> {
    let node = (2_u32..7, 0_u32..64);
    let drawn = (0_usize..4, 1_u32..4, 0_i32..3, any::<u32>());
    (
        prop::collection::vec(node, 2..5),
        prop::collection::vec(drawn, 1..7),
        any::<(bool, bool, bool, bool)>(),
        prop::collection::btree_set(0_usize..7, 0..4),
        prop::collection::btree_set(0_usize..7, 0..3),
    )
        .prop_map(
            |(nodes, services, (preemption, moves, tags, count_stopped), anti_affinity, affinity)| {
                let count = nodes.len();
                let mut view = View::default();
                for (index, (memory, bits)) in nodes.into_iter().enumerate() {
                    let mut facts = NodeFacts::default();
                    facts.capacity.memory = format!("{memory}Gi").parse().ok();
                    facts.capacity.cpu = "1".parse().ok();
                    facts.schedulable = !bits.is_multiple_of(8);
                    facts.policy = (bits % 4 > 1).then_some(NodePolicyId(bits % 2));
                    facts.node_group = (bits / 8).is_multiple_of(4).then(|| "far".to_owned());
                    view.nodes.insert(node_name(index), facts);
                }
                for (index, drawn) in services.into_iter().enumerate() {
                    view.services.insert(format!("s{index}").into(), service(count, drawn));
                }
                view.settings.preemption = preemption;
                view.settings.inter_group_moves = moves;
                view.reservation.count_stopped = count_stopped;
                view.node_groups.insert("far".to_owned(), AllocationPolicy::LastResort);
                if tags {
                    view.settings.exclusion_tags = vec!["x:".to_owned()];
                }
                let members = NodePriorities(BTreeMap::from([(node_name(0), 0), (node_name(1), 0)]));
                view.groups.insert(
                    "g".to_owned(),
                    GroupSpec { nodes: members, restricted: true, ..GroupSpec::default() },
                );
                add_rules(&mut view, &anti_affinity, &affinity);
                view
            },
        )
}

/// Adds rules over services by number. Sets with fewer than two services, and contradicting sets, are omitted.
fn add_rules(view: &mut View, anti_affinity: &BTreeSet<usize>, affinity: &BTreeSet<usize>) {
    let names =
        |set: &BTreeSet<usize>| -> Vec<String> { set.iter().map(|index| format!("s{index}")).collect() };
    let (anti_affinity, affinity) = (names(anti_affinity), names(affinity));
    let anti_affinity: Vec<&str> = anti_affinity.iter().map(String::as_str).collect();
    let affinity: Vec<&str> = affinity.iter().map(String::as_str).collect();
    let clash = affinity.iter().filter(|name| anti_affinity.contains(name)).count() > 1;
    let mut sets: Vec<(Affinity, &[&str])> = Vec::new();
    if anti_affinity.len() > 1 && anti_affinity.len() <= view.nodes.len() {
        sets.push((Affinity::Negative, &anti_affinity));
    }
    if affinity.len() > 1 && !clash {
        sets.push((Affinity::Positive, &affinity));
        // If the members were on different nodes at first, node groups would be evaluated from several nodes.
        for node in view.nodes.values_mut() {
            node.node_group = None;
        }
    }
    set_resource_rules(view, &sets);
}

/// Generates a cluster of three or four equal nodes, and services of any size and priority without other constraints,
/// so that preemption decides.
pub(super) fn view_with_preemption() -> impl Strategy<Value = View> {
    let drawn = (0_usize..4, 1_u32..5, 0_i32..5);
    (3_usize..5, prop::collection::vec(drawn, 3..7)).prop_map(|(count, services)| {
        let mut view = View::default();
        for index in 0..count {
            let mut facts = NodeFacts::default();
            facts.capacity.memory = "5Gi".parse().ok();
            view.nodes.insert(node_name(index), facts);
        }
        let mut used = vec![0; count];
        for (index, (node, memory, priority)) in services.into_iter().enumerate() {
            used[node % count] += memory;
            if used[node % count] <= 5 {
                view.services.insert(format!("s{index}").into(), service(count, (node, memory, priority, 0)));
            }
        }
        view.settings.preemption = true;
        view
    })
}
